"""One sandbox of the namespaces backend, as its user sees it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from posttrain.errors import SandboxLost, UsageError
from posttrain.sandboxes._base import ExecResult, ExecStatus, Level, Limits, Needs
from posttrain.sandboxes.namespaces.inside.kernel import memory_file
from posttrain.sandboxes.namespaces.link import Link
from posttrain.sandboxes.namespaces.output import Drain

if TYPE_CHECKING:
    from posttrain.sandboxes.namespaces.host import NamespaceHost

SIGXCPU, SIGKILL, SIGXFSZ = 24, 9, 25
GRACE = 10.0  # seconds for pid 1 to answer beyond a program's own limits, on a busy host
OVER = {
    "memory": "a process was killed because the sandbox's memory was used up",
    "pids": "the sandbox's number of processes was used up",
    "disk": "the sandbox's disk was full, or a file too large",
}
DEEPEST = 200  # layers of one workspace: what a mount's options can name


class NamespaceSandbox:
    """Made by ``NamespaceHost.create``. One execution at a time; kept programs run beside it."""

    def __init__(self, host: NamespaceHost, link: Link, name: str, needs: Needs, lowers: tuple[str, ...]) -> None:
        self.host, self.name, self.needs = host, name, needs
        self.level: Level = host.level
        self._link = link
        self._turn = asyncio.Lock()
        self._upper, self._below = 0, lowers  # the number of the upper layer; what lies below it, top first
        self._inherited = lowers
        self._snapshots: dict[str, tuple[str, ...]] = {}
        self._aborted = self._destroyed = False
        self._kept: set[KeptProgram] = set()
        self._copies = 0

    async def exec(
        self,
        argv: Sequence[str] | None = None,
        *,
        python: str | None = None,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        private: bytes | None = None,
    ) -> ExecResult:
        """Runs ``argv``, or ``python`` in the warm interpreter (with ``argv`` as its arguments), in the workspace.

        ``limits``: its ``cpu``, ``wall``, ``output``, ``descriptors`` hold for this execution. ``private``: bytes that a Python
        program finds at descriptor 3; what it writes to descriptor 4 is the ``result``. Raises UsageError for neither or a NUL
        in an argument; a program's failure is a status, never an exception, and so is a sandbox that is lost meanwhile.
        """
        what = _what(argv, python, env)
        limits = limits or self.needs.limits
        async with self._turn:
            return await self._run(what, list(argv or ()), python, stdin, dict(env or {}), limits, private)

    async def _run(
        self,
        what: str,
        argv: list[str],
        python: str | None,
        stdin: bytes,
        env: dict[str, str],
        limits: Limits,
        private: bytes | None,
    ) -> ExecResult:
        drain = Drain(limits.output, 3 if private is not None else 2)
        fds = [memory_file("stdin", stdin), *drain.inner[:2]]
        opened = [fds[0]]
        if python is not None:
            fds.append(memory_file("program", python.encode("utf-8", "surrogatepass")))
            opened.append(fds[-1])
        if private is not None:
            fds += [memory_file("private", private), drain.inner[2]]
            opened.append(fds[-2])
        try:
            number, future = self._link.order(
                "exec", tuple(fds), what=what, argv=argv, env=env, cwd="/workspace", keep=False, limits=self._inner(limits)
            )
        except SandboxLost as error:
            drain.close()
            return ExecResult(status="aborted" if self._aborted else "sandbox_lost", detail=str(error))
        finally:
            for fd in opened:
                os.close(fd)
            drain.close_inner()
        try:
            return await self._ended(number, future, drain, limits)
        finally:
            drain.close()

    def _inner(self, limits: Limits) -> dict[str, int]:
        """Rlimits. Without a control group each process gets the sandbox's memory, and the user's processes are counted."""
        grouped = self.level == "T2"
        return {
            "cpu": limits.cpu,
            "file": self.needs.limits.disk << 20,
            "files": limits.descriptors,
            "memory": 0 if grouped else self.needs.limits.memory << 20,
            "processes": 0 if grouped else self.needs.limits.pids,
        }

    async def _ended(self, number: int, future: asyncio.Future[dict[str, Any]], drain: Drain, limits: Limits) -> ExecResult:
        expired: dict[str, Any] | None = None
        over = False
        flood: asyncio.Future[Any] = asyncio.ensure_future(drain.flooded.wait())
        try:
            await asyncio.wait([future, flood], timeout=limits.wall, return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                over = drain.flooded.is_set()
                expired = await self._link.ask("expire", GRACE, of=number)
            end = await asyncio.wait_for(asyncio.shield(future), GRACE)
            if "failed" in end:
                return _not_begun(end)
            await asyncio.wait_for(drain.done.wait(), GRACE)
        except (SandboxLost, TimeoutError) as error:
            return await self._lost(drain, error)
        except asyncio.CancelledError:
            with contextlib.suppress(SandboxLost):
                self._link.order("kill")  # the next execution finds nothing of it
            raise
        finally:
            flood.cancel()
        over = over or drain.flooded.is_set()
        if self.level != "T2" and end["code"] > 0:  # no counters: what the program was told is the sign
            said = drain.kept[1][-4000:]
            end["oom"] = end["oom"] or b"MemoryError" in said
            end["refused"] = end["refused"] or b"Resource temporarily unavailable" in said
        status, detail = _status(end, expired, over, limits, await self._disk_full(end))
        if end["trouble"]:
            detail = f"the program could not begin: {end['trouble']}"
        out = drain.kept
        return ExecResult(
            status=status,
            exit_code=end["code"] if end["code"] >= 0 else None,
            stdout=out[0],
            stderr=out[1],
            result=out[2] if len(out) > 2 else b"",
            detail=detail,
            cpu_seconds=end["cpu"],
            wall_seconds=end["wall"],
            peak_memory=end["peak"],
            left_behind=end["left"],
        )

    async def _lost(self, drain: Drain, error: BaseException) -> ExecResult:
        status: ExecStatus = "aborted" if self._aborted else "sandbox_lost"
        if not self._aborted:
            self._link.close()
        return ExecResult(status=status, detail=str(error) or "no answer", stdout=drain.kept[0], stderr=drain.kept[1])

    async def _disk_full(self, end: dict[str, Any]) -> bool:
        """Asked only after a failure: whether nothing more could be written."""
        if end["code"] == 0:
            return False
        try:
            stats = await self.host.supervise("stats", self.name)
        except SandboxLost:
            return False
        return bool(stats["disk_free"] == 0 or stats["files_free"] == 0)

    async def read(self, path: str) -> bytes:
        """A regular file of the workspace, read with the programs' own rights, following no link. Raises OSError as ``open``."""
        return (await self._transfer(path, None)).stdout

    async def write(self, path: str, content: bytes) -> None:
        """Makes or replaces a regular file of the workspace, with the directories it needs. Raises OSError as ``open`` would."""
        await self._transfer(path, content)

    async def _transfer(self, path: str, content: bytes | None) -> ExecResult:
        async with self._turn:
            drain = Drain((self.needs.limits.disk << 20) + 65536, 2)
            fds = (memory_file("content", content or b""), *drain.inner)
            try:
                number, future = self._link.order(
                    "exec", fds, what="file", argv=[], env={}, cwd="/workspace", keep=False, path=path,
                    write=content is not None, mode=0o644, limits=self._inner(self.needs.limits),
                )  # fmt: skip
            finally:
                os.close(fds[0])
                drain.close_inner()
            try:
                result = await self._ended(number, future, drain, self.needs.limits)
            finally:
                drain.close()
        if result.status in ("sandbox_lost", "aborted", "infra_error"):
            raise SandboxLost(result.detail)
        if result.status != "ok":
            code, _, text = result.stderr.decode(errors="replace").partition(" ")
            raise OSError(int(code) if code.isdigit() else 5, text or result.status, path)
        return result

    async def keep(self, argv: Sequence[str] | None = None, *, python: str | None = None) -> KeptProgram:
        """Starts a program that lives on beside later executions, until it ends or the sandbox does."""
        return KeptProgram(self, _what(argv, python), list(argv or ()), python)

    async def snapshot(self) -> str:
        """The workspace's files as they are now; its name. Kept programs stand still meanwhile, and are not part of it."""
        async with self._turn:
            if len(self._below) >= DEEPEST:
                raise UsageError(
                    f"sandbox {self.name} has {DEEPEST} snapshots on top of each other; restore an earlier one first"
                )
            name = f"{self.name}:{len(self._snapshots)}"
            if self._kept:
                self._copies += 1
                copied = f"copy{self._copies}"
                await self._link.ask("copy", GRACE, of=str(self._upper), to=copied)
                self._snapshots[name] = (f"{self.name}/{copied}", *self._below)
            else:
                self._below = (f"{self.name}/{self._upper}", *self._below)
                await self._lay(self._below)
                self._snapshots[name] = self._below
            return name

    async def _lay(self, lowers: tuple[str, ...]) -> None:
        self._upper += 1
        await self._link.ask(
            "lay", GRACE, layer=self._upper, lowers=[self._inner_path(layer) for layer in lowers] or ["/store/empty"]
        )

    def _inner_path(self, layer: str) -> str:
        store, _, number = layer.partition("/")
        return f"/store/{number}" if store == self.name else f"/layers/{self._inherited.index(layer)}"

    async def restore(self, snapshot: str) -> None:
        """The files are those of ``snapshot`` again; every program dies. Raises UsageError for a snapshot of another sandbox."""
        async with self._turn:
            self._below = self._known(snapshot)
            await self._lay(self._below)

    def _known(self, snapshot: str) -> tuple[str, ...]:
        if snapshot not in self._snapshots:
            raise UsageError(
                f"sandbox {self.name} has no snapshot {snapshot!r}; it has {', '.join(self._snapshots) or 'none yet'}"
            )
        return self._snapshots[snapshot]

    async def fork(self, snapshot: str) -> NamespaceSandbox:
        """A new sandbox whose files are those of ``snapshot``; this one goes on undisturbed."""
        layers = self._known(snapshot)
        made = await self.host.create(self.needs, lowers=layers)
        made._snapshots[snapshot] = layers
        return made

    async def abort(self) -> None:
        """Everything in it dies at once, whatever it does; returns when all are reaped. The sandbox is then good for nothing."""
        self._aborted = True
        await self.host.supervise("abort", self.name)
        self._link.close()

    async def destroy(self) -> None:
        """Ends it and gives back all it held; once more does nothing."""
        self._link.close()
        for program in list(self._kept):
            program.close()
        if not self._destroyed:
            self._destroyed = True
            await self.host.supervise("destroy", self.name)

    async def stats(self) -> Mapping[str, float]:
        """What it holds and has used: see ``inside/groups.py``; bytes, processes, seconds."""
        found = await self.host.supervise("stats", self.name)
        return {key: float(value) for key, value in found.items() if isinstance(value, int | float) and key != "id"}


def _what(argv: Sequence[str] | None, python: str | None, env: Mapping[str, str] | None = None) -> str:
    if python is None and not argv:
        raise UsageError("nothing to run: give argv (a program and its arguments) or python (a program's text)")
    words = [*(argv or ()), *(env or {}).keys(), *(env or {}).values()]
    wrong = next((a for a in words if not isinstance(a, str) or "\0" in a or (not a.isascii() and _surrogate(a))), None)
    if wrong is not None:
        raise UsageError(f"an argument or a variable must be text without NUL and lone surrogates, not {wrong!r:.200}")
    return "argv" if python is None else "python"


def _not_begun(end: dict[str, Any]) -> ExecResult:
    """The fork itself was refused: a kept program holds all that the sandbox may use."""
    status: ExecStatus = {errno.EAGAIN: "pids", errno.ENOMEM: "memory"}.get(end["errno"], "infra_error")  # type: ignore[assignment]
    return ExecResult(status=status, detail=f"the program could not begin: {end['failed']}")


def _surrogate(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _status(
    end: dict[str, Any], expired: dict[str, Any] | None, over: bool, limits: Limits, disk_full: bool
) -> tuple[ExecStatus, str]:
    """The first that applies, the surest signs first."""
    code = end["code"]
    if end["trouble"]:
        return "infra_error", end["trouble"]
    if over:
        return "output_limit", f"more than {limits.output} bytes of output"
    if end["over"]:
        return end["over"], OVER[end["over"]]
    if expired is not None:
        if expired["cpu"] >= limits.cpu:
            return "timeout_cpu", f"{expired['cpu']:.1f} s of CPU time, of all its processes; {limits.cpu} s are allowed"
        if expired["runnable"] and expired["cpu"] + expired["waited"] >= limits.cpu:  # else it slept, and woke up to spin
            return (
                "infra_error",
                f"still runnable after {limits.wall:g} s with {expired['cpu']:.1f} s of CPU time: this host is starved",
            )
        return "timeout_wall", f"blocked at its wall limit of {limits.wall:g} s"
    if code in (-SIGXCPU, -SIGKILL) and end["cpu"] >= limits.cpu - 0.5:
        return "timeout_cpu", f"{limits.cpu} s of CPU time are allowed"
    if code == 0:
        return "ok", ""
    if end["oom"]:
        return "memory", OVER["memory"]
    if end["refused"]:
        return "pids", OVER["pids"]
    if disk_full or code == -SIGXFSZ:
        return "disk", OVER["disk"]
    if code < 0:
        return "signal", f"killed by signal {-code}"
    return "nonzero", f"exit code {code}"


class KeptProgram:
    """A program that lives on beside later executions. Made by ``NamespaceSandbox.keep``."""

    def __init__(self, box: NamespaceSandbox, what: str, argv: list[str], python: str | None) -> None:
        self._box, self._limits = box, box.needs.limits
        self._drain = Drain(self._limits.output, 2)
        inner, self._input = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._input, False)
        fds = [inner, *self._drain.inner]
        if python is not None:
            fds.append(memory_file("program", python.encode("utf-8", "surrogatepass")))
        try:
            self._number, self._future = box._link.order(
                "exec", tuple(fds), what=what, argv=argv, env={}, cwd="/workspace", keep=True, limits=box._inner(self._limits)
            )
        finally:
            for fd in (inner, *fds[3:]):
                os.close(fd)
            self._drain.close_inner()
        box._kept.add(self)
        self._future.add_done_callback(lambda _: box._kept.discard(self))

    async def send(self, data: bytes) -> None:
        """Writes to its standard input. Raises BrokenPipeError when it has ended, TimeoutError when it does not read."""
        async with asyncio.timeout(self._limits.wall):
            view = memoryview(data)
            while view:
                try:
                    view = view[os.write(self._input, view) :]
                except BlockingIOError:
                    await _writable(self._input)

    async def output(self) -> AsyncIterator[bytes]:
        """Standard output and error as they come, until the program ends or its output limit."""
        while not self._drain.flooded.is_set():
            part = await self._drain.next()
            if not part:
                return
            yield part

    async def end(self, deadline: float = 10.0) -> ExecResult:
        """Closes its input and waits; at the deadline (seconds) it is killed, as at its wall limit."""
        self._close_input()
        try:
            limits = replace(self._limits, wall=deadline)
            return await self._box._ended(self._number, self._future, self._drain, limits)
        finally:
            self._drain.close()

    def close(self) -> None:
        """Gives up its descriptors, as the end of its sandbox does."""
        self._close_input()
        self._drain.close()

    def _close_input(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1


async def _writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_writer(fd)
