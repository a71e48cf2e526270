"""Judges the files that an attempt left behind, as a program of several modules, by hidden cases."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._base import too_long
from posttrain.verifiers.code import MOST, Code

LOADER = """
import importlib.abc, importlib.util, sys
class _Files(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_loader(name, self) if name + ".py" in FILES else None
    def exec_module(self, module):
        exec(compile(FILES[module.__name__ + ".py"], module.__name__ + ".py", "exec"), module.__dict__)
sys.meta_path.insert(0, _Files())
"""


@dataclass(frozen=True)
class Repository:
    """``artefacts["files"]`` (name -> text) judged as one program: ``task.answer`` holds ``module``, ``entry``, ``cases``.

    Tests that the policy can see or edit do not count; only its modules are taken, to a sandbox it never touched.
    ``cpu`` and ``memory`` as in ``code``. Reward 1 when all hidden cases pass, else 0.
    """

    cpu: int = 5
    memory: int = 256

    async def judge(self, trajectory: Trajectory) -> Verdict:
        if verdict := too_long(trajectory, "repository"):
            return verdict
        spec, files = _spec(trajectory), trajectory.artefacts.get("files")
        if spec is None:
            return Verdict(status="unverifiable", evidence={"missing": "module, entry and cases"}, verifier="repository")
        if not isinstance(files, Mapping) or not trajectory.artefacts.get("edits"):
            return _wrong("malformed", "No file was changed.")
        if sum(len(text) for text in files.values()) > MOST:
            return _wrong("malformed", f"The files hold more than {MOST:,} characters.")
        program = loading(files) + f"from {spec['module']} import {spec['entry']}\n"
        verdict = await Code(cpu=self.cpu, memory=self.memory).run(program, spec, key=trajectory.task.environment)
        return Verdict(
            status=verdict.status,
            reward=verdict.reward,
            parts=dict(verdict.parts),
            feedback=verdict.feedback,
            verifier="repository",
        )


def loading(files: Mapping[str, str]) -> str:
    """The text of a program that begins by making ``files`` importable, without any of them on a disk."""
    return f"FILES = {dict(files)!r}\n{LOADER}"


def _spec(trajectory: Trajectory) -> dict[str, str] | None:
    try:
        spec = json.loads(str(trajectory.task.answer))
    except ValueError:
        return None
    return spec if isinstance(spec, dict) and spec.keys() >= {"module", "entry", "cases"} else None


def _wrong(status: str, feedback: str) -> Verdict:
    return Verdict(
        status="malformed" if status == "malformed" else "wrong", parts={"cases": 0.0}, feedback=feedback, verifier="repository"
    )
