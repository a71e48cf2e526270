"""A user's own rows as an environment: a file of prompts and answers, and a verifier's name or a ``reward.py``."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from posttrain.datasets.files import column, read_rows
from posttrain.datasets.messages import messages
from posttrain.envs._base import Environment
from posttrain.errors import UsageError
from posttrain.types import Limits, Message, Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.function import Function

PROBED = 4  # rows whose worked answers are judged before a run starts


@dataclass(frozen=True, kw_only=True)
class Rows(Environment):
    """Rows of ``data`` (JSON lines, JSON, parquet), judged by ``reward`` (a Python file) or by ``verifier``.

    ``prompt`` names the column with the question: text, or a list of messages (a row with ``messages`` needs no such column:
    its last assistant message is the answer). ``answer`` names the column with the answer, of which only what follows the
    last ``answer_after`` counts ("####" for GSM8K). ``system`` goes before the prompt, ``wordings`` around it
    ("{prompt}\\nEnd with 'Answer: ' and the number."), one a row by its hash; ``template`` names a column that tells wordings
    apart instead. ``max_tokens`` is an answer's budget. ``worked`` puts a reference answer together, for the warm-up and for
    few-shot prompts: "{steps}\\nAnswer: {answer}", where steps are what stands before ``answer_after``, less what matches the
    regular expression ``erase``; a verifier must find the first few of them right before a run starts. One prompt in eight is
    held out by its hash; repeats are dropped.
    """

    data: Path = Path()
    reward: Path | None = None
    verifier: Verifier = field(default=None, metadata={"kind": "verifiers"})  # type: ignore[assignment]
    prompt: str = "prompt"
    answer: str = "answer"
    answer_after: str = ""
    system: str = ""
    wordings: tuple[str, ...] = ("{prompt}",)
    template: str = ""
    max_tokens: int = 256
    worked: str = ""
    erase: str = ""

    def __post_init__(self) -> None:
        if self.reward is not None:
            if self.verifier is not None and not isinstance(self.verifier, Function):
                raise UsageError(f"rows are judged by reward = {str(self.reward)!r} or by a verifier, not by both; leave one out")
            if self.verifier is None or Path(self.verifier.path) != Path(self.reward):
                object.__setattr__(self, "verifier", Function(path=self.reward))
        bad = [w for w in self.wordings if "{prompt}" not in w]
        if bad or not self.wordings:
            raise ValueError(f"wordings must each hold {{prompt}}, got {list(self.wordings)}")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; an answer needs at least 1")
        try:
            re.compile(self.erase)
        except (re.error, OverflowError, RecursionError) as fault:
            said = f"{fault.msg}, at character {(fault.pos or 0) + 1}" if isinstance(fault, re.error) else str(fault)
            raise UsageError(
                f"erase = {self.erase!r} is no regular expression: {said}; a mark that is meant as it stands takes a "
                "backslash before it"
            ) from fault

    @property
    def name(self) -> str:
        """``rows/<the file's stem>``."""
        return f"rows/{Path(self.data).stem or 'rows'}"

    def tasks(self) -> Iterator[Task]:
        """All rows as tasks, in an order fixed by their content (so that a sorted file is no curriculum by accident)."""
        return iter(self._read[0])

    def reference(self, task: Task) -> Response | None:
        """The row's own worked answer as ``worked`` says (lists and objects as JSON); None without it, or without an answer."""
        if not self.worked or task.answer is None:
            return None
        whole = self._asked(str(task.metadata["place"]), task.private["row"])[1]
        whole = whole if isinstance(whole, str) else json.dumps(whole, ensure_ascii=False)
        steps = whole.rpartition(self.answer_after)[0] if self.answer_after else whole
        steps = re.sub(self.erase, "", steps) if self.erase else steps
        answer = task.answer if isinstance(task.answer, str) else json.dumps(task.answer, ensure_ascii=False)
        parts = {"{steps}": steps.strip(), "{answer}": answer}
        return Response.of(re.sub(r"\{steps\}|\{answer\}", lambda place: parts[place.group()], self.worked))

    def probes(self) -> Iterator[tuple[Task, Response, bool]]:
        """The first few worked answers, for a verifier to find right; a ``reward`` may say any number of them, so none then."""
        if self.worked and not isinstance(self.verifier, Function):
            for task in islice(self.tasks(), PROBED):
                if (response := self.reference(task)) is not None:
                    yield task, response, True

    @property
    def num_dropped(self) -> int:
        """Rows dropped because an earlier one asks the same."""
        return len(self._read[1])

    @property
    def dropped(self) -> Sequence[str]:
        """Where the dropped rows stand: "rows.jsonl, line 7 (asks the same as line 3)"."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[list[Task], list[str]]:
        if self.data == Path():
            raise UsageError("rows are read from a file of yours: give data=ROWS.jsonl, and reward=REWARD.py or verifier=NAME")
        if self.verifier is None:
            raise UsageError(
                f"{self.data} has no judge: give reward = \"reward.py\" with 'def reward(trajectory) -> float', "
                'or verifier = "exact" (or number, ...)'
            )
        tasks: dict[str, Task] = {}
        dropped: list[str] = []
        for place, row in read_rows(Path(self.data)):
            task = self._task(place, row)
            first = tasks.setdefault(task.prompt_hash, task)
            if first is not task:
                dropped.append(f"{place} (asks the same as {str(first.metadata['place']).rpartition(', ')[2]})")
        return sorted(tasks.values(), key=lambda t: t.id), dropped

    def _task(self, place: str, row: dict[str, Any]) -> Task:
        asked, answer = self._asked(place, row)
        if self.answer_after and isinstance(answer, str):
            _, mark, after = answer.rpartition(self.answer_after)
            if not mark:
                raise UsageError(f"{place}: {self.answer!r} holds no {self.answer_after!r}, which answer_after asks for")
            answer = after.strip()
        digest = hashlib.sha256(json.dumps([[m.role, m.content] for m in asked], ensure_ascii=True).encode()).hexdigest()
        number = int(digest[:8], 16) % len(self.wordings)
        last = max(i for i, m in enumerate(asked) if m.role == "user")
        worded = self.wordings[number].replace("{prompt}", asked[last].content)
        prompt = [*asked[:last], Message(role="user", content=worded), *asked[last + 1 :]]
        if self.system:
            prompt.insert(0, Message(role="system", content=self.system))
        return Task(
            id=f"{self.name}/{digest[:16]}",
            environment=self.name,
            template=str(column(row, self.template, place, "template")) if self.template else str(number),
            prompt=tuple(prompt),
            limits=Limits(max_tokens=self.max_tokens),
            answer=json.loads(json.dumps(answer, default=str)),
            private={"row": json.loads(json.dumps(row, default=str))},
            metadata={"place": place},
        )

    def _asked(self, place: str, row: dict[str, Any]) -> tuple[tuple[Message, ...], Any]:
        """The prompt and the whole answer as they stand in the row."""
        chat = row.get(self.prompt)
        chat = row.get("messages") if chat is None else chat
        if chat is None:
            column(row, self.prompt, place, "prompt")  # says what is missing
        asked = (Message(role="user", content=chat),) if isinstance(chat, str) else messages(chat, place)
        answer = row.get(self.answer)
        if asked[-1].role == "assistant":
            answer = asked[-1].content if answer is None else answer
            asked = asked[:-1]
        if not any(m.role == "user" and m.content.strip() for m in asked):
            raise UsageError(f"{place}: the prompt is empty; every row needs a question")
        if answer is None and not isinstance(self.verifier, Function):
            column(row, self.answer, place, "answer")
        return asked, answer
