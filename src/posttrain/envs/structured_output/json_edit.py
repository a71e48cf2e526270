"""Changes to a small JSON object, one after the other."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, spread
from posttrain.envs._machinery.people import AGE, PLAIN
from posttrain.envs._machinery.words import GOODS, NAMES
from posttrain.types import Response, Task
from posttrain.verifiers.json_schema import JsonSchema

WORDINGS = (
    "{object}\n{edits} Reply with the new JSON object only.",
    "Here is a JSON object: {object}\n{edits} Write the changed object, no other words.",
    "{edits} The object is {object}\nOutput only the resulting JSON.",
    "JSON: {object}\nChange: {edits}\nGive the JSON object after the change and nothing else.",
)
STEPWISE = tuple(
    w + " Put it on the last line."
    for w in (
        "{object}\nDo these in order: {edits} Give the final JSON object.",
        "Here is a JSON object: {object}\nApply in order: {edits} Write the final object on one line.",
        "Apply these changes one after the other: {edits}\nThe object is {object}\nOutput the resulting JSON object.",
        "JSON: {object}\nChanges, in order: {edits}\nGive the JSON object after all of them.",
    )
)
FACTS = {f.key: f for f in (AGE, *PLAIN)}
KINDS = (
    ("set", "set", "add", "remove"),
    ("set", "add", "remove", "rename", "increase"),
    ("rename", "increase", "increase", "copy", "swap", "set", "remove"),
)  # at level 0, 1 and from 2 on
Edit = tuple[str, str, str, dict[str, Any]]  # what to say, the worked step, the key it touched, the object after it


@dataclass(frozen=True)
class JsonEdit(Family):
    """A JSON object and changes to it (set, add, remove, rename, increase, copy, swap); the answer is the object after them.

    Level 0: one change to an object of two or three keys. Level 9: ten changes in order, which build on one another, to 14 keys.
    Size: keys plus twice the changes.
    """

    @property
    def verifier(self) -> JsonSchema:
        return JsonSchema()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        start = self._object(rng, rng.randint(2, 3) if level == 0 else spread(level, 3, 14))
        before = now = dict(start)
        edits, steps, last = [], [], ""
        for _ in range(level + 1):
            before = now
            said, step, last, now = self._edit(rng, now, KINDS[min(level, 2)], last)
            edits.append(said)
            steps.append(step)
        if now == start:  # two changes undid each other
            before = now
            said, step, last, now = self._edit(rng, now, ("add",), last)
            edits.append(said)
            steps.append(step)
        stepwise = level >= 2
        template, wording = pick(rng, STEPWISE if stepwise else WORDINGS)
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(object=json.dumps(start), edits=" ".join(edits)),
            answer=now,
            oracle="\n".join([*steps, json.dumps(now)]) if stepwise else json.dumps(now),
            size=len(start) + 2 * len(edits),
            private={"schema": {"type": "object"}, "last_line": stepwise, "start": start, "before": before},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        right = json.dumps(task.answer)
        key = next(iter(task.answer))
        other = "7" if task.answer[key] == 7 else 7
        early = [task.private["start"]] if task.private["start"] != task.answer else []
        if task.private["before"] not in (task.private["start"], task.answer):
            early.append(task.private["before"])
        return [
            *(Response.of(json.dumps(x), "a change is missing") for x in early),
            Response.of(json.dumps(task.answer | {key: other}), "another value changed"),
            Response.of(json.dumps({k: v for k, v in task.answer.items() if k != key}), "one key lost"),
            Response.of(json.dumps([task.answer]), "wrapped in an array"),
            Response.of(f"{right} {right}", "twice"),
            Response.of(right.replace('"', "'"), "Python, not JSON"),
        ]

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])

    def _object(self, rng: random.Random, keys: int) -> dict[str, Any]:
        """A person, or a stock of goods when that has too few keys."""
        if keys <= 4:
            return {"name": rng.choice(NAMES)} | {k: FACTS[k].draw(rng) for k in rng.sample(list(FACTS), keys - 1)}
        return {"name": rng.choice(NAMES)} | {k: rng.randint(2, 99) for k in rng.sample(GOODS, keys - 1)}

    def _edit(self, rng: random.Random, now: dict[str, Any], kinds: Sequence[str], last: str) -> Edit:
        """One change that alters the object. ``last`` is the key that the change before touched: most changes go on with it."""
        numbers = [k for k, v in now.items() if isinstance(v, int)]
        free = [g for g in GOODS if g not in now]
        kind = rng.choice([k for k in kinds if k != "remove" or len(now) > 2])
        key = last if last in now and rng.random() < 0.7 else rng.choice([k for k in now if k != "name"])
        new = rng.choice(free)
        if kind == "remove":
            key = rng.choice([k for k in now if k not in ("name", last)])
            return f"Remove {key}.", f"no {key}", "", {k: v for k, v in now.items() if k != key}
        if kind == "rename":
            after = {new if k == key else k: v for k, v in now.items()}
            return f"Rename {key} to {new}.", f"{new}: {json.dumps(now[key])}", new, after
        if kind == "copy":
            return f"Add {new} with the value of {key}.", f"{new}: {json.dumps(now[key])}", new, now | {new: now[key]}
        if kind == "increase" and key in numbers:
            value = now[key] + rng.randint(2, 30)
            return f"Increase {key} by {value - now[key]}.", f"{key}: {value}", key, now | {key: value}
        others = [k for k in numbers if now[k] != now[key]]
        if kind == "swap" and key in numbers and others:
            other = rng.choice(others)
            after = now | {key: now[other], other: now[key]}
            return f"Swap the values of {key} and {other}.", f"{key}: {after[key]}, {other}: {after[other]}", other, after
        if kind == "set":
            value = self._other(rng, key, now[key])
            return f"Set {key} to {json.dumps(value)}.", f"{key}: {json.dumps(value)}", key, now | {key: value}
        value = rng.randint(2, 99)
        return f"Add {new} with the value {value}.", f"{new}: {value}", new, now | {new: value}

    def _other(self, rng: random.Random, key: str, value: Any) -> Any:
        """Another value of the same kind."""
        if isinstance(value, int):
            return value + rng.randint(1, 40)
        other = FACTS[key].draw(rng) if key in FACTS else value
        return other if other != value else f"dark {value}"
