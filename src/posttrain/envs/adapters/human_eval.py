"""Rows in the format of HumanEval (and of MBPP as distributed in it): a function to write, judged by its hidden tests."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from posttrain.datasets.files import column, read_rows
from posttrain.envs._base import Environment
from posttrain.errors import UsageError
from posttrain.types import Limits, Message, Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.code import Code

PROBED = 4
AT_ONCE = 4  # references judged at one time
WORDINGS = (
    "Complete this Python function. Answer with the whole function in a ```python block.\n```python\n{prompt}\n```",
    "{prompt}\nWrite the function above in full, in a ```python block.",
    "Implement {entry} in Python:\n```python\n{prompt}\n```\nGive all of its code in a ```python block.",
    "```python\n{prompt}\n```\nFill in the body of {entry} and reply with the finished function in a ```python block.",
)


@dataclass(frozen=True, kw_only=True)
class HumanEval(Environment):
    """Rows with ``prompt`` (signature and docstring), ``entry_point``, ``test`` (a ``check(candidate)``), ``canonical_solution``.

    ``data``: the file (JSON lines, JSON, parquet). A row whose own reference does not pass its own tests cannot be judged: with
    ``admit`` each reference runs once, when the tasks are first asked for, and those that fail are left out and listed in
    ``refused``. ``max_tokens``: an answer's budget; ``cpu``: seconds for each call.
    """

    data: Path = Path()
    admit: bool = True
    max_tokens: int = 400
    cpu: int = 5

    @property
    def name(self) -> str:
        """``functions/<the file's stem>``."""
        return f"functions/{Path(self.data).stem or 'rows'}"

    @property
    def verifier(self) -> Verifier:
        return Code(cpu=self.cpu)

    def tasks(self) -> Iterator[Task]:
        """The rows that are admitted, in an order fixed by their content."""
        return iter(self._admitted[0])

    @property
    def refused(self) -> Sequence[str]:
        """Where the rows stand whose reference fails, with the reason."""
        return self._admitted[1]

    def reference(self, task: Task) -> Response:
        return Response.of(f"```python\n{task.private['reference'].strip()}\n```")

    def probes(self) -> Iterator[tuple[Task, Response, bool]]:
        """The first few references, and a function that does nothing."""
        for task in self._admitted[0][:PROBED]:
            yield task, self.reference(task), True
            entry = json.loads(str(task.answer))["entry"]
            yield task, Response.of(f"```python\ndef {entry}(*args):\n    return None\n```", "does nothing"), False

    @cached_property
    def _admitted(self) -> tuple[list[Task], list[str]]:
        if self.data == Path():
            raise UsageError("functions are read from a file of yours: give data=ROWS.jsonl")
        tasks = sorted((self._task(place, row) for place, row in read_rows(Path(self.data))), key=lambda t: t.id)
        if not self.admit:
            return tasks, []
        why = _elsewhere(self._judged(tasks))
        refused = [
            f"{t.metadata['place']}: its reference fails its own tests ({w})" for t, w in zip(tasks, why, strict=True) if w
        ]
        kept = [t for t, w in zip(tasks, why, strict=True) if not w]
        if not kept:
            raise UsageError(f"no reference of {self.data} passes its own tests; the first: {refused[0]}")
        return kept, refused

    async def _judged(self, tasks: Sequence[Task]) -> list[str]:
        """What each reference fails at, "" where it passes."""
        slots = asyncio.Semaphore(AT_ONCE)
        code = Code(cpu=self.cpu)

        async def one(task: Task) -> str:
            async with slots:
                verdict = await code.run(task.private["reference"], json.loads(str(task.answer)), key=self.name)
            return "" if verdict.status == "ok" else verdict.feedback

        return list(await asyncio.gather(*(one(task) for task in tasks)))

    def _task(self, place: str, row: dict[str, Any]) -> Task:
        prompt, entry, tests, solution = (
            str(column(row, name, place, name)) for name in ("prompt", "entry_point", "test", "canonical_solution")
        )
        digest = hashlib.sha256((prompt + entry).encode()).hexdigest()
        number = int(digest[:8], 16) % len(WORDINGS)
        asked = WORDINGS[number].format(prompt=prompt.strip("\n"), entry=entry)
        return Task(
            id=f"{self.name}/{digest[:16]}",
            environment=self.name,
            template=str(number),
            prompt=(Message(role="user", content=asked),),
            limits=Limits(max_tokens=self.max_tokens),
            answer=json.dumps({"entry": entry, "tests": tests}),
            private={"reference": prompt + solution + "\n"},
            metadata={"place": place},
        )


def _elsewhere(work: Any) -> Any:
    """The result of a coroutine, run to its end in a thread of its own: tasks are asked for inside event loops too."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((asyncio.run(work), None))
        except BaseException as error:
            found.append((None, error))

    thread = threading.Thread(target=run, name="references")
    thread.start()
    thread.join()
    result, error = found[0]
    if error is not None:
        raise error
    return result
