"""The sandbox's seam. No backend is built in yet: what needs one is refused, never run outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How one execution ended. ``status`` is a key of ``errors.EXEC_STATUS``; times in seconds, memory in bytes."""

    status: str
    exit_code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory: int = 0


@runtime_checkable
class Sandbox(Protocol):
    """Where untrusted code runs; ``level`` is its isolation level, T0 (none) to T3."""

    level: str

    async def exec(
        self,
        argv: Sequence[str] | None = None,
        *,
        python: str | None = None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        deadline: float = 10.0,
    ) -> ExecResult: ...

    async def read(self, path: str) -> bytes: ...

    async def write(self, path: str, content: bytes) -> None: ...

    async def snapshot(self) -> str: ...

    async def fork(self, snapshot: str) -> Sandbox: ...

    async def restore(self, snapshot: str) -> None: ...

    async def abort(self) -> None: ...

    async def destroy(self) -> None: ...

    async def stats(self) -> Mapping[str, float]: ...
