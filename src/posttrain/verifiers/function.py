"""A user's own reward: a Python file with ``def reward(trajectory) -> float``.

The file is trusted code, the user's own, and runs unsandboxed - but in a worker process, so that one that hangs, exits or eats
memory takes nothing with it. What it prints is not shown.
"""

from __future__ import annotations

import ast
import math
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from posttrain.errors import UsageError, nearest
from posttrain.processes import shared
from posttrain.types import Trajectory, Verdict
from posttrain.verifiers._base import too_long


@dataclass(frozen=True, kw_only=True)
class Function:
    """Calls ``function`` of the file ``path`` on every attempt; it returns any finite number (or True / False).

    The attempt it gets is a ``Trajectory``, read only: ``.text`` (the last answer, ``final_text``), ``.answer`` and ``.row`` (the
    user's own row), ``.task``, ``.turns`` (each with ``role``, ``text``, ``tool_calls``), ``.outcome``. A reward of at least
    ``passing`` counts as passed. ``deadline`` is in seconds; past it the attempt is not judged, never 0.
    """

    path: Path
    function: str = "reward"
    passing: float = 1.0
    deadline: float = 10.0

    def __post_init__(self) -> None:
        path = Path(self.path).expanduser()
        if not path.is_file():
            raise UsageError(
                f"there is no file {path}; a reward is a Python file with 'def {self.function}(trajectory) -> float'"
            )
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        except SyntaxError as error:
            raise UsageError(f"{path}, line {error.lineno} is not Python: {error.msg}") from error
        names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        names |= {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        names |= {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
        if self.function not in names:
            hint = nearest(self.function, names) if names else ""
            raise UsageError(
                f"{path} has no function {self.function!r}.{hint} Write 'def {self.function}(trajectory) -> float' in it"
            )

    async def judge(self, trajectory: Trajectory) -> Verdict:
        """``ok`` or ``wrong`` with the number. Raises ``UsageError`` naming file, line and row where the function fails."""
        if long := too_long(trajectory, "function"):
            return long
        path = str(Path(self.path).expanduser().absolute())
        said = await shared("rewards").call(
            "posttrain.verifiers.function:call", path, self.function, trajectory, deadline=self.deadline
        )
        place = trajectory.task.metadata.get("place")
        row = f"the answer to {trajectory.task.id}" + (f" ({place})" if place else "")
        if "failed" in said:
            raise UsageError(f"{said['failed']}, on {row}. Mend it, then resume the run: an answer without a reward cannot train")
        reward = float(said["reward"])
        return Verdict(
            status="ok" if reward >= self.passing else "wrong",
            reward=reward,
            parts={self.function: reward},
            verifier=f"function {Path(self.path).name}",
        )


class Attempt(Trajectory):
    """What the user's function gets: a trajectory with short names for what it mostly needs."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The last answer."""
        return self.final_text

    @property
    def answer(self) -> Any:
        """The row's answer, None where it has none."""
        return self.task.answer

    @property
    def row(self) -> Mapping[str, Any]:
        """The user's row, all of its columns."""
        row: Mapping[str, Any] = self.task.private.get("row", {})
        return row


def call(path: str, function: str, trajectory: Trajectory) -> dict[str, Any]:
    """In the worker: loads the file and calls the function; ``{"reward": 1.0}``, or ``{"failed": why}`` with file and line."""
    from posttrain.plugins import load_file

    try:
        found = getattr(load_file(Path(path)), function)
    except UsageError as error:
        return {"failed": str(error)}
    attempt = Attempt(**{f.name: getattr(trajectory, f.name) for f in fields(trajectory)})
    try:
        reward = found(attempt)
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # the last two as the function's own doing
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
        where = f"{path}, line {lines[-1]}" if lines else path
        return {"failed": f"{where}: {function}() raised {type(error).__name__}: {str(error)[:500]}"}
    if hasattr(reward, "item") and callable(reward.item):
        reward = reward.item()
    if not isinstance(reward, int | float):
        return {"failed": f"{path}: {function}() returned {str(reward)[:80]!r} ({type(reward).__name__}), not a number"}
    if (isinstance(reward, int) and abs(reward) > sys.float_info.max) or not math.isfinite(reward):
        shown = reward if isinstance(reward, float) else "a whole number beyond any float"
        return {"failed": f"{path}: {function}() returned {shown}, but a reward is a finite number"}
    return {"reward": float(reward)}
