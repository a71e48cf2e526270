"""A small repository whose test fails: find the wrong line by reading, searching and running, and mend it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

from posttrain.envs._base import Family, Session
from posttrain.envs._machinery.api_world import call, play, with_tools, written
from posttrain.envs._machinery.asking import ask, pick, spread
from posttrain.envs._machinery.programs import Numbers, Program, hidden, program
from posttrain.envs._machinery.repository import TOOLS, RepositorySession, repository
from posttrain.sandboxes._base import Sandbox
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.repository import Repository

WORDINGS = (
    "A test of this repository fails. Use the tools to find the wrong line and mend it, then say done.",
    "Make the failing test pass: read, edit, run the tests. Change the code, not the tests. Then say done.",
    "The tests of this small project are red because of one bug. Find it with the tools, repair it and say done.",
    "Task: repair the bug that test_main.py shows. Work with the tools; when the tests pass, say done.",
)
THEMES = ("orders", "scores", "prices", "counts", "levels", "values", "readings", "ages")


@dataclass(frozen=True)
class FailingTest(Family):
    """One of 1 to 9 modules, each a step of a pipeline, has a wrong line; a visible test shows it, hidden ones judge."""

    gate_seeds: ClassVar[int] = 16

    @property
    def verifier(self) -> Verifier:
        return Repository()

    async def start(self, task: Task, sandbox: Sandbox | None) -> Session:
        return RepositorySession(repository(task.private["files"], "test_main.py"), task.environment)

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = spread(level, 1, 9)
        while True:
            made, inputs = program(rng, num)
            at = rng.randrange(num)
            apart = [xs for xs in inputs[1:] if made.slipped(at, xs) != made.run(xs)]
            if len(apart) >= 3:
                break
        shown = apart[0]
        theme = rng.choice(THEMES)
        files = _files(made, theme, at, shown)
        name, step = f"{theme}_{at + 1}.py", made.steps[at]
        calls = [
            call("run_tests"),
            call("read_file", name="main.py"),
            call("read_file", name=name),
            call("edit_file", name=name, old=step.slip, new=step.code),
            call("run_tests"),
        ]
        template, wording = pick(rng, WORDINGS)
        answer = json.loads(hidden("process", made, [xs for xs in inputs if xs != shown])) | {"module": "main"}
        task = ask(
            self,
            seed,
            level,
            template=template,
            prompt=f"{wording} ({theme}, {num} step{'s' if num > 1 else ''}; process({shown}) must be {made.run(shown)!r})",
            answer=json.dumps(answer),
            oracle=written(calls) + "\n" + "\n".join(files.values()),
            size=float(num),
            private={"files": files, "calls": calls, "at": at, "code": step.code, "slip": step.slip},
        )
        return with_tools(task, TOOLS, turns=len(calls) + 1)

    def oracle(self, task: Task) -> Response:
        return play(task.private["calls"])

    def decoys(self, task: Task) -> list[Response]:
        run, read, look, edit, _ = task.private["calls"]
        name, slip = edit["arguments"]["name"], task.private["slip"]
        answer = json.loads(task.answer)
        shown = task.prompt[0].content.rpartition("must be ")[2].rstrip(")")
        return [
            play([run, read, look], "nothing is mended"),
            play([call("edit_file", name=name, old=slip, new=slip + "  # mended"), run], "only a comment"),
            play([call("edit_file", name="test_main.py", old="assert", new="assert True or"), run], "the test is changed"),
            play(
                [call("edit_file", name="main.py", old="    return", new=f"    return {shown}\n    return"), run],
                "the example by heart",
            ),
            play(
                [call("edit_file", name=name, old=slip, new="import os; os._exit(0)"), run], f"ends before {answer['entry']} does"
            ),
        ]

    def size(self, task: Task) -> float:
        """Modules."""
        return float(task.metadata["size"])


def _files(made: Program, theme: str, at: int, shown: Numbers) -> dict[str, str]:
    """The repository: a module a step, ``main.py`` that calls them in order, and the test."""
    *steps, result = made.steps
    files = {}
    for i, step in enumerate(steps):
        line = step.slip if i == at else step.code
        files[f"{theme}_{i + 1}.py"] = f"def step(xs):\n    # {step.text}\n    {line}\n    return xs\n"
    names = [f"{theme}_{i + 1}" for i in range(len(steps))]
    body = "".join(f"    xs = {name}.step(xs)\n" for name in names)
    files["main.py"] = f"import {', '.join(names)}\n\n\ndef process(xs):\n{body}    {result.code}\n"
    files["test_main.py"] = (
        f"from main import process\n\nfound = process({shown})\nexpected = {made.run(shown)!r}\n"
        'print("passed" if found == expected else f"failed: process gives {found}, not {expected}")\n'
    )
    return files
