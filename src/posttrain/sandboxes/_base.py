"""The sandbox's seam: what code needs, what it may use up, how it ended, and the calls that every backend answers.

Isolation levels, strongest first: T3 a kernel of its own (gVisor, a virtual machine, a remote service); T2 namespaces, a
control group, a seccomp filter and Landlock on the host's kernel; T2u the same without a control group, for plain users: the
memory of one process is bounded, that of all together is watched; T1 a filter and Landlock only, inside a container that
allows no namespaces; T0 none. A task names the lowest that it accepts, and nothing ever runs below it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

Level = Literal["T0", "T1", "T2u", "T2", "T3"]
LEVELS: Final[tuple[Level, ...]] = ("T0", "T1", "T2u", "T2", "T3")

# How an execution ended. ``errors.EXEC_STATUS`` says what each means for a verdict.
ExecStatus = Literal[
    "ok",
    "nonzero",  # it ended with another exit code
    "signal",  # it was killed by a signal that was not a limit
    "timeout_wall",  # its wall limit, with every process blocked: a deadlock, a sleep
    "timeout_cpu",
    "memory",
    "pids",
    "disk",
    "output_limit",
    "sandbox_lost",
    "infra_error",  # ours: it could not begin, or was still runnable at its wall limit without having had its CPU time
    "aborted",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the programs of a sandbox may use up. The first five hold for all of them together, the others for each execution.

    ``memory`` and ``disk`` in MiB (what is written to the workspace, /tmp and /dev/shm also counts as memory), ``pids`` processes
    and threads, ``cpus`` cores, ``files`` that exist; ``cpu`` and ``wall`` in seconds, ``output`` in bytes of standard output and
    error together, ``descriptors`` of one process. The wall limit is for programs that block: it should be well above ``cpu``.
    """

    memory: int = 512
    disk: int = 64
    pids: int = 64
    cpus: float = 1.0
    files: int = 16384
    cpu: int = 10
    wall: float = 60.0
    output: int = 1 << 20
    descriptors: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a task asks of the place where its code runs. No backend gives a network yet, so none can be asked for."""

    level: Level = "T2u"
    limits: Limits = Limits()
    total_memory: bool = False  # all processes together must be bounded by a control group, not watched
    process_snapshots: bool = False


PLAIN: Final = Needs()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How one execution ended, and what it used: seconds, and bytes for memory (the largest process).

    ``stdout`` and ``stderr`` are bytes as written, up to the output limit; ``result`` what a Python program wrote to its private
    descriptor. ``detail`` is a sentence about anything but "ok".
    """

    status: ExecStatus
    exit_code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    result: bytes = b""
    detail: str = ""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_memory: int = 0
    left_behind: int = 0  # processes that outlived it, killed


class Process(Protocol):
    """A program that is kept: a shell, an interpreter, a server. It lives on while other executions come and go."""

    async def send(self, data: bytes) -> None: ...

    def output(self) -> AsyncIterator[bytes]:
        """Standard output and error as they come, until the program ends or its output limit."""
        ...

    async def end(self, deadline: float = 10.0) -> ExecResult:
        """Closes its input and waits; at the deadline (seconds) it is killed."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """Where untrusted code runs. Paths are inside the workspace. Raises SandboxLost when the sandbox is gone."""

    level: Level

    async def exec(
        self,
        argv: Sequence[str] | None = None,
        *,
        python: str | None = None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        private: bytes | None = None,
    ) -> ExecResult: ...

    async def keep(self, argv: Sequence[str] | None = None, *, python: str | None = None) -> Process: ...

    async def read(self, path: str) -> bytes: ...

    async def write(self, path: str, content: bytes) -> None: ...

    async def snapshot(self) -> str: ...

    async def fork(self, snapshot: str) -> Sandbox: ...

    async def restore(self, snapshot: str) -> None: ...

    async def abort(self) -> None: ...

    async def destroy(self) -> None: ...

    async def stats(self) -> Mapping[str, float]: ...


class Host(Protocol):
    """A backend that is open: it makes sandboxes, and ends them all when it closes."""

    level: Level

    @property
    def alive(self) -> bool:
        """Whether it can still make any."""
        ...

    async def create(self, needs: Needs = PLAIN) -> Sandbox: ...


class Backend(Protocol):
    """The plug-in: what ``open`` gives lives as long as the block. Raises SandboxUnavailable, naming what is missing."""

    def open(self) -> AbstractAsyncContextManager[Host]: ...
