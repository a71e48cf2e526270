"""The controller's side of the supervisor: starts it, makes sandboxes through it, ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from posttrain.errors import SandboxLost, SandboxUnavailable
from posttrain.sandboxes._base import LEVELS, PLAIN, Level, Needs
from posttrain.sandboxes.namespaces.box import NamespaceSandbox
from posttrain.sandboxes.namespaces.inside import wire
from posttrain.sandboxes.namespaces.link import Link

if TYPE_CHECKING:
    from posttrain.sandboxes.namespaces import Namespaces

INSIDE = Path(__file__).parent / "inside"
START = "import sys; sys.path.insert(0, {parent!r}); from inside import {module} as it, supervisor; supervisor.main(it.{kind})"
ANSWER = 20.0  # seconds that the supervisor, or a sandbox's pid 1, may take for anything; a starved host is slow, not this slow


@contextlib.asynccontextmanager
async def opened(options: Namespaces) -> AsyncIterator[NamespaceHost]:
    """The supervisor as long as the block. Raises SandboxUnavailable, naming the primitive that is refused and the remedy."""
    async with supervised(options, "supervisor", "Supervisor", options.user) as (link, hello):
        if "broken" in hello:
            raise SandboxUnavailable(_refused(hello))
        yield NamespaceHost(link, hello)


class Options(Protocol):
    """What every supervisor is started with."""

    @property
    def readable(self) -> tuple[str, ...]: ...

    @property
    def interpreter(self) -> str: ...


@contextlib.asynccontextmanager
async def supervised(options: Options, module: str, kind: str, user: int | None) -> AsyncIterator[tuple[Link, dict[str, Any]]]:
    """A process that runs ``kind`` of ``inside/<module>``, as ``user`` where that is given, and the first thing it says.

    It ends with the block. Raises SandboxUnavailable where it does not start.
    """
    if sys.platform != "linux":
        raise SandboxUnavailable(f"this backend needs Linux, this is {sys.platform}; run on Linux, or in a Linux virtual machine")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    python = options.interpreter or sys.executable
    start = START.format(parent=str(INSIDE.parent), module=module, kind=kind)
    with theirs:
        try:
            process = subprocess.Popen(
                [python, "-I", "-S", "-B", "-c", start, str(theirs.fileno())],
                env={},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        except OSError as error:
            ours.close()
            raise SandboxUnavailable(
                f"the sandboxes' supervisor could not start as user {os.geteuid() if user is None else user} with {python}: "
                f"{error}; give a Python that this user may read and run, such as interpreter = '/usr/bin/python3'"
            ) from error
    link = Link(ours, "the sandboxes' supervisor")
    try:
        wire.send(ours, {"readable": list(options.readable)})
        try:
            hello = await asyncio.wait_for(link.first, ANSWER)
        except (TimeoutError, SandboxLost) as error:
            raise SandboxUnavailable(
                f"the sandboxes' supervisor did not start: {error}; 'posttrain doctor' shows what is there"
            ) from error
        yield link, hello
    finally:
        link.close()
        try:
            await asyncio.to_thread(process.wait, ANSWER)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _refused(hello: dict[str, Any]) -> str:
    remedy = (
        "user namespaces are off for plain users here: run as root, or allow them "
        "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)"
        if hello.get("errno") == 1
        else "'posttrain doctor' shows what this machine allows"
    )
    return f"no sandbox can be made here: {hello['broken']}; {remedy}"


class NamespaceHost:
    """``missing``: control groups that cannot be used, with the reason; ``level`` follows from them."""

    sandbox: ClassVar[type[NamespaceSandbox]] = NamespaceSandbox

    def __init__(self, link: Link, hello: dict[str, Any]) -> None:
        self._link = link
        self.missing: dict[str, str] = hello["missing"] if hello["root"] else dict.fromkeys(("memory", "pids", "cpu"), "not root")
        self.is_root: bool = hello["root"]
        self.level: Level = "T2" if self.is_root and not {"memory", "pids"} & set(self.missing) else "T2u"
        self.groups = "version 2" if hello["v2"] else "version 1" if self.is_root else "none"
        self.landlock = 0  # its version, as the first sandbox says
        self._count = 0

    @property
    def alive(self) -> bool:
        """Whether the supervisor is; without it nothing can be made any more."""
        return not self._link.lost

    async def create(
        self, needs: Needs = PLAIN, *, lowers: tuple[str, ...] = (), off: tuple[str, ...] = (), let: str = ""
    ) -> NamespaceSandbox:
        """A new sandbox with an empty workspace, or over ``lowers``. ``off`` and ``let`` take one wall away, for tests only.

        Raises SandboxUnavailable where ``needs`` cannot be met here, SandboxLost where the making failed.
        """
        self._check(needs)
        self._count += 1
        name = f"s{self._count}"
        limits = needs.limits
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            link = Link(ours, f"sandbox {name}")
            sizes: dict[str, float] = {"disk_mib": limits.disk, "files": limits.files, "memory": limits.memory << 20}
            sizes |= {"pids": limits.pids, "cpus": limits.cpus}
            order = {"name": name, "lowers": list(lowers), "off": list(off), "let": let, "ungrouped": "groups" in off}
            try:
                await self._link.ask("create", ANSWER, (theirs.fileno(),), limits=sizes, **order)
            except BaseException:  # cancelled, too: what was begun is taken back
                link.close()
                with contextlib.suppress(SandboxLost):
                    self._link.order("destroy", name=name)
                raise
        box = self.sandbox(self, link, name, needs, lowers)
        try:
            hello = await asyncio.wait_for(link.first, ANSWER)
        except TimeoutError:
            hello = {"broken": f"no answer within {ANSWER:g} s"}
        except SandboxLost as error:
            hello = {"broken": str(error)}
        except asyncio.CancelledError:
            link.close()
            with contextlib.suppress(SandboxLost):
                self._link.order("destroy", name=name)
            raise
        if "broken" in hello:
            await box.destroy()
            raise SandboxLost(f"sandbox {name} could not begin: {hello['broken']}")
        self.landlock = hello["landlock"]
        return box

    def _check(self, needs: Needs) -> None:
        if LEVELS.index(needs.level) > LEVELS.index(self.level):
            why = "; ".join(f"{c}: {reason}" for c, reason in self.missing.items()) or "this backend shares the host's kernel"
            raise SandboxUnavailable(
                f"the task asks for isolation {needs.level}, this machine gives {self.level} ({why}); "
                "run as root with control groups for T2, use gVisor or a remote backend for T3, or accept less with level"
            )
        if needs.total_memory and self.level != "T2":
            raise SandboxUnavailable(
                f"control group memory: {self.missing.get('memory', 'not there')}; the memory of all processes together cannot "
                "be bounded here. Run as root, or accept a bound for each process with total_memory = false"
            )
        self._check_snapshots(needs)

    def _check_snapshots(self, needs: Needs) -> None:
        if needs.process_snapshots:
            raise SandboxUnavailable(
                "this backend snapshots files, not processes: processes die on restore and are absent in forks. "
                "Use a backend with process checkpoints, or process_snapshots = false"
            )

    async def supervise(self, do: str, name: str, deadline: float = ANSWER) -> dict[str, Any]:
        """One order to the supervisor about a sandbox."""
        return await self._link.ask(do, deadline, name=name)
