"""Runs a program that the policy wrote, apart from the tests that judge it.

The judged program gets one call's arguments and nothing else, in a fresh process of a sandbox that the policy never
touched; only a plain value comes back, over a descriptor of its own. The tests run in another process that never loads the
program. So there is no exit code to fake, no test to read, no comparison to subvert, no process of the policy's left alive.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posttrain.errors import EXEC_STATUS, SandboxLost
from posttrain.sandboxes._base import ExecResult, Limits, Needs, Process, Sandbox
from posttrain.types import Trajectory, Verdict
from posttrain.verifiers import _shape, _typed
from posttrain.verifiers._base import too_long
from posttrain.verifiers._shape import NOT_COMPILED

MOST = 50_000  # characters of a program
LARGEST_FLOAT = 1e300
TYPED = Path(_typed.__file__).read_text(encoding="utf-8")

# What runs around the program: it reads one call, loads the program, and tells the value.
CALL = (
    f"TYPED = {TYPED!r}\n"
    + """
import os as _os, sys as _sys
_scope = {}
exec(compile(TYPED, "typed.py", "exec"), _scope)
_encode, _write, _exit, _decode = _scope["encode"], _os.write, _os._exit, _scope["decode"]
_task = _decode(_os.read(3, 1 << 26).decode())
_os.close(3)
_answer = _os.dup(4)
_os.close(4)
_names = {"__name__": "candidate", "__builtins__": __builtins__}
try:
    _code = compile(_task["program"], "program.py", "exec")
except (SyntaxError, ValueError, RecursionError, MemoryError):
    _exit(4)
exec(_code, _names)
_entry = _names.get(_task["entry"])
if not callable(_entry):
    print("the program defines no function " + _task["entry"], file=_sys.stderr)
    _exit(3)
_text = _encode(_entry(*_task["args"], **_task["kwargs"])).encode()
while _text:
    _text = _text[_write(_answer, _text):]
_exit(0)
"""
)

# The tests' side: every call of the candidate goes out as a line, its value comes in as one.
TESTS = """
import os, sys
_scope = {}
exec(compile(TYPED, "typed.py", "exec"), _scope)
class _Failed(Exception): pass
_say = open(os.dup(1), "w", buffering=1)  # what the tests print is not what they say
os.dup2(2, 1)
def _candidate(*args, **kwargs):
    _say.write("call " + _scope["encode"]((args, kwargs)) + "\\n")
    kind, _, rest = sys.stdin.readline().rstrip("\\n").partition(" ")
    if kind != "value":
        raise _Failed(rest)
    return _scope["decode"](rest)
_names = {"__name__": "tests"}
exec(compile(TEXT, "tests.py", "exec"), _names)
try:
    _names["check"](_candidate)
    _say.write("end passed\\n")
except _Failed as error:
    _say.write("end failed " + str(error) + "\\n")
except BaseException as error:
    _say.write("end failed " + type(error).__name__ + "\\n")
"""


@dataclass(frozen=True)
class Code:
    """Python code, judged by hidden cases or hidden tests in a sandbox. Reward 1 when all pass, else 0.

    ``Task.answer`` is JSON: ``entry`` (the function's name) with ``cases`` - a list of ``{"args": ..., "expected": ...}``, each a
    typed value as ``verifiers/_typed.py`` writes it - or ``tests``, the text of a ``check(candidate)`` that asserts. A case may
    name its own ``entry``.
    ``shape`` is what the text must look like as well (``verifiers/_shape.py``): the part ``shape`` is 0 where it does not.
    ``prelude``: text before the program, such as imports that the task grants. ``cpu``: seconds for each call; ``memory``: MiB;
    ``partial``: the reward is the share of cases that pass. ``tolerance``: relative, for floats.
    """

    cpu: int = 5
    memory: int = 256
    partial: bool = False
    tolerance: float = 1e-6

    async def judge(self, trajectory: Trajectory) -> Verdict:
        if verdict := too_long(trajectory, "code"):
            return verdict
        program = extract(trajectory.final_text)
        spec = _spec(trajectory.task.answer)
        if spec is None:
            return _verdict("unverifiable", 0.0, {}, "The task holds no cases and no tests for a program.")
        if len(program) > MOST:
            return _verdict("malformed", 0.0, {"cases": 0.0}, f"The code is longer than {MOST:,} characters.")
        if spec["entry"] not in program:
            return _verdict("malformed", 0.0, {"cases": 0.0}, f"There is no function {spec['entry']} in the answer.")
        return await self.run(program, spec, key=trajectory.task.environment)

    async def run(self, program: str, spec: dict[str, Any], *, key: str = "") -> Verdict:
        """Judges a program's text. Raises InfraError where the sandbox failed, SandboxUnavailable where there can be none."""
        from posttrain.sandboxes.shared import in_sandbox, in_sandboxes

        needs = Needs(level="T2u", limits=Limits(memory=self.memory, cpu=self.cpu, wall=4.0 * self.cpu + 10, cpus=1.0))
        if "shape" in spec and (why := _shape.fault(program, spec["shape"])):
            if why == NOT_COMPILED:
                return _verdict("malformed", 0.0, {"compiles": 0.0, "shape": 0.0, "cases": 0.0}, f"The {why}.")
            return _verdict("wrong", 0.0, {"shape": 0.0, "cases": 0.0}, f"The code does not have the form asked for: {why}.")
        program = spec.get("prelude", "") + "\n" + program if spec.get("prelude") else program
        if "tests" not in spec:
            return self._judged(await in_sandbox(needs, lambda box: self._cases(box, program, spec), key=key), spec)
        for_tests = Needs(level="T2u", limits=Limits(memory=self.memory, cpu=4 * self.cpu, wall=60.0 * self.cpu, cpus=0.5))
        passed, why = await in_sandboxes((needs, for_tests), lambda box, tests: self._tests(box, tests, program, spec), key=key)
        return self._judged([(passed, why)], spec)

    def _judged(self, results: list[tuple[bool, str]], spec: dict[str, Any]) -> Verdict:
        share = sum(ok for ok, _ in results) / len(results)
        parts = {"compiles": 1.0, "cases": share} | ({"shape": 1.0} if "shape" in spec else {})
        if share == 1:
            return _verdict("ok", 1.0, parts, "All hidden cases pass.")
        why = next(why for ok, why in results if not ok)
        if why == NOT_COMPILED:
            return _verdict("malformed", 0.0, {"compiles": 0.0, "cases": 0.0}, f"The {why}.")
        return _verdict(
            "wrong",
            share if self.partial else 0.0,
            parts,
            f"{sum(ok for ok, _ in results)} of {len(results)} hidden cases pass; {why}.",
        )

    async def _cases(self, box: Sandbox, program: str, spec: dict[str, Any]) -> list[tuple[bool, str]]:
        results = []
        for case in spec["cases"]:
            args = _typed.decode(json.dumps(case["args"]))
            value, why = await self._call(box, program, case.get("entry", spec["entry"]), args, {})
            if not why and not same(value, _typed.decode(json.dumps(case["expected"])), self.tolerance):
                why = "one gives another value"
            results.append((not why, why))
            if why and not self.partial:
                break
        return results + [(False, "it was not reached")] * (len(spec["cases"]) - len(results))

    async def _call(self, box: Sandbox, program: str, entry: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        """(value, "") or (None, what went wrong)."""
        task = _typed.encode({"program": program, "entry": entry, "args": list(args), "kwargs": dict(kwargs)})
        result = await box.exec(python=CALL, private=task.encode("utf-8", "surrogatepass"))
        return _read(result)

    async def _tests(self, box: Sandbox, tests: Sandbox, program: str, spec: dict[str, Any]) -> tuple[bool, str]:
        """The tests in a kept process of one sandbox, the program's calls in another: neither can reach the other."""
        kept = await tests.keep(python=f"TYPED = {TYPED!r}\nTEXT = {spec['tests']!r}\n" + TESTS)
        try:
            if (verdict := await self._told(kept, box, program, spec["entry"])) is not None:
                return verdict
        finally:
            end = await kept.end()
        if EXEC_STATUS[end.status] == "infra_error":
            raise SandboxLost(f"the tests' process: {end.detail}")
        return False, "the tests did not end: " + (end.detail or end.stderr[-200:].decode(errors="replace"))

    async def _told(self, kept: Process, box: Sandbox, program: str, entry: str) -> tuple[bool, str] | None:
        """Answers the tests' calls until they say how they end; None where they do not."""
        waiting = b""
        async for part in kept.output():
            waiting += part
            while b"\n" in waiting:
                line, _, waiting = waiting.partition(b"\n")
                kind, _, rest = line.decode("utf-8", "replace").partition(" ")
                if kind == "end":
                    return rest.startswith("passed"), rest.removeprefix("failed ") or "the tests fail"
                if kind == "call":
                    args, kwargs = _typed.decode(rest)
                    value, why = await self._call(box, program, entry, args, kwargs)
                    await kept.send((f"failed {why}" if why else f"value {_typed.encode(value)}").encode() + b"\n")
        return None


def _read(result: ExecResult) -> tuple[Any, str]:
    meaning = EXEC_STATUS[result.status]
    if meaning == "infra_error":
        raise SandboxLost(result.detail)
    if meaning == "wrong":
        if result.status == "nonzero" and result.exit_code == 1:
            last = result.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            return None, f"one raises {last.partition(':')[0][:60] or 'an error'}"
        if result.status == "nonzero" and result.exit_code == 4:
            return None, NOT_COMPILED
        if result.status == "nonzero" and result.exit_code == 3:
            return None, "the function that was asked for is missing"
        return None, f"one ends with {result.status}: {result.detail}"
    try:
        return _typed.decode(result.result.decode()), ""
    except (ValueError, UnicodeDecodeError):
        return None, "one gives no value"


def same(value: Any, expected: Any, tolerance: float) -> bool:
    """Equal, of the same plain types (True is not 1, a tuple no list), but 2 is 2.0; ``tolerance`` where a float is expected."""
    if type(value) in (int, float) and type(expected) in (int, float):
        if value == expected:
            return True
        if type(expected) is not float or not (math.isfinite(expected) and abs(value) < LARGEST_FLOAT):
            return False
        return bool(abs(value - expected) <= tolerance * max(1.0, abs(expected)))
    if type(value) is not type(expected):
        return False
    if isinstance(value, list | tuple):
        return len(value) == len(expected) and all(same(a, b, tolerance) for a, b in zip(value, expected, strict=True))
    if isinstance(value, dict):
        return _kinds(value) == _kinds(expected) and all(same(v, expected[k], tolerance) for k, v in value.items())
    if isinstance(value, set | frozenset):
        return _kinds(value) == _kinds(expected)
    return bool(value == expected)


def _kinds(members: Any) -> set[tuple[type, Any]]:
    """The members with their types, so that True is not 1 here either."""
    return {(type(m), m) for m in members}


def _spec(answer: Any) -> dict[str, Any] | None:
    """The task's hidden half, None where it is not one."""
    try:
        spec = json.loads(answer) if isinstance(answer, str) else answer
    except ValueError:
        return None
    fit = isinstance(spec, dict) and isinstance(spec.get("entry"), str) and (spec.get("cases") or spec.get("tests"))
    return spec if fit else None


def extract(text: str) -> str:
    """The last fenced block that is marked as Python, else the last fenced block, else the whole text."""
    blocks: list[tuple[str, list[str]]] = []
    is_open = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("```"):
            if not is_open:
                blocks.append((line.strip().strip("`").strip().lower(), []))
            is_open = not is_open
        elif is_open:
            blocks[-1][1].append(line)
    marked = [body for kind, body in blocks if kind in ("python", "py", "python3")]
    found = marked or [body for _, body in blocks]
    return "".join(found[-1]) if found else text


def _verdict(status: Any, reward: float, parts: dict[str, float], feedback: str) -> Verdict:
    return Verdict(status=status, reward=reward, parts=parts, feedback=feedback, verifier="code")
