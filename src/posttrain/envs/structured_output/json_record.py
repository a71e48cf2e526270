"""Text about people -> JSON under a stated schema."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said
from posttrain.envs._machinery.people import AGE, HARDER, PLAIN, Fact, object_schema
from posttrain.envs._machinery.words import NAMES
from posttrain.types import Response, Task
from posttrain.verifiers.json_schema import JsonSchema

ONE = (
    "Turn the text into a JSON object with the keys {keys}. Reply with the JSON only.\nText: {text}",
    "{text}\nWrite this as one JSON object. Keys: {keys}. No other words.",
    'Text: "{text}"\nExtract the facts as a JSON object with exactly these keys: {keys}. Output only JSON.',
    "Keys: {keys}\nText: {text}\nGive the JSON object with these keys and nothing else.",
)
MANY = (
    "Turn the text into a JSON array, one object a person in order, keys {keys}. The last line is the JSON.\nText: {text}",
    "{text}\nList these people, in this order, as a JSON array of objects. Keys: {keys}. The last line must be the JSON.",
    'Text: "{text}"\nExtract a JSON array of one object a person, in order, with exactly these keys: {keys}. End with the JSON.',
    "Keys: {keys}\nText: {text}\nGive a JSON array of one object for each person in order. Its one line comes last.",
)


@dataclass(frozen=True)
class JsonRecord(Family):
    """A sentence about a person becomes a JSON object; the schema is strict on keys and types.

    Level 0: a name and one fact. To level 4: more facts, dates to reformat, lists. From level 5: an array of people
    whose ages hang on one another ("3 years older than Mia"), nine of them at level 9. Size: values to write.
    """

    @property
    def verifier(self) -> JsonSchema:
        return JsonSchema()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        facts = self._facts(rng, level)
        people, sentences, steps = self._people(rng, level, facts)
        many = level >= 5
        value: Any = people if many else people[0]
        schema = object_schema(facts)
        if many:
            schema = {"type": "array", "items": schema}
        keys = ", ".join(["name (string)", *(f"{f.key} ({f.kind})" for f in facts)])
        oracle = "\n".join([*steps, json.dumps(value)]) if many else json.dumps(value)
        template, wording = pick(rng, MANY if many else ONE)
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(keys=keys, text=" ".join(sentences)),
            answer=value,
            oracle=oracle,
            size=len(people) * (1 + len(facts)),
            private={"schema": schema, "last_line": many},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        many = isinstance(task.answer, list)
        record = dict(task.answer[0] if many else task.answer)
        key = list(record)[-1]

        def say(changed: dict[str, Any], note: str) -> Response:
            return Response.of(json.dumps([changed, *task.answer[1:]] if many else changed), note)

        right = json.dumps(task.answer)
        return [
            say(record | {"name": record["name"] + "a"}, "another name"),
            say(record | {key: not record[key] if isinstance(record[key], bool) else [record[key]]}, "a value in a list"),
            say({k: v for k, v in record.items() if k != key}, "a key is missing"),
            say(record | {"note": "ok"}, "a key too many"),
            Response.of(f"{right}\nHere is the JSON.", "prose after the JSON"),
            Response.of(
                right[:-1] + (', {"name": 1}]' if many else f', "name": {json.dumps(record["name"])}}}'), "a duplicate key"
            ),
        ]

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])

    def _facts(self, rng: random.Random, level: int) -> tuple[Fact, ...]:
        """Which facts the schema has, in order; from level 5 always the age, which the steps are about."""
        if level == 0:
            return (rng.choice((AGE, *PLAIN)),)
        plain = rng.sample(PLAIN, min(level, 3) if level < 5 else 1)
        harder = rng.sample(HARDER, min(level - 1, 3) if level < 5 else (level - 3) // 3)
        return (AGE, *plain, *harder)

    def _people(
        self, rng: random.Random, level: int, facts: tuple[Fact, ...]
    ) -> tuple[list[dict[str, Any]], list[str], list[str]]:
        """(records, sentences, worked steps); from the second person on the age is said relative to the one before."""
        people: list[dict[str, Any]] = []
        sentences, steps = [], []
        for name in rng.sample(NAMES, level if level >= 5 else 1):
            record: dict[str, Any] = {"name": name} | {f.key: f.draw(rng) for f in facts}
            clauses = [f.says(record[f.key]) for f in facts]
            if people:
                before, gap = people[-1], rng.randint(2, 15) * rng.choice((1, -1))
                if not 18 <= before["age"] + gap <= 90:
                    gap = -gap
                record["age"] = before["age"] + gap
                clauses[0] = f"is {abs(gap)} years {'older' if gap > 0 else 'younger'} than {before['name']}"
                steps.append(f"{name} is {before['age']} {'+' if gap > 0 else '-'} {abs(gap)} = {record['age']}.")
            people.append(record)
            sentences.append(
                f"{name} {clauses[0]}." if len(clauses) == 1 else f"{name} {', '.join(clauses[:-1])} and {clauses[-1]}."
            )
        return people, sentences, steps
