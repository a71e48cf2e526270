"""The controller's side of sandboxes without namespaces: what they are asked for, and snapshots that are copies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar

from posttrain.errors import SandboxUnavailable, UsageError
from posttrain.sandboxes._base import LEVELS, Level, Limits, Needs
from posttrain.sandboxes.namespaces.box import DEEPEST, GRACE, NamespaceSandbox
from posttrain.sandboxes.namespaces.host import NamespaceHost, supervised
from posttrain.sandboxes.namespaces.link import Link

if TYPE_CHECKING:
    from posttrain.sandboxes.landlock import Landlock

NOBODYS = 61_001  # whom programs run as where root asks: a number far from people's, and there in containers' own users too
REMEDY = "'posttrain doctor' shows what this machine allows; where user namespaces can be made, the namespaces backend needs less"


@contextlib.asynccontextmanager
async def opened(options: Landlock) -> AsyncIterator[LandlockHost]:
    """The supervisor as long as the block. Raises SandboxUnavailable, naming the primitive that is refused and the remedy."""
    user = NOBODYS if options.user is None and os.geteuid() == 0 else options.user
    async with supervised(options, "landlocked", "Landlocked", user) as (link, hello):
        if "broken" in hello:
            raise SandboxUnavailable(f"no sandbox of level T1 can be made here: {hello['broken']}; {REMEDY}")
        yield LandlockHost(link, hello)


class LandlockSandbox(NamespaceSandbox):
    """Made by ``LandlockHost.create``. Its snapshots are copies: as dear as the files are many."""

    def _inner(self, limits: Limits) -> dict[str, int]:
        """The bound on processes is the keeper's to set: the kernel counts all of the user's."""
        return super()._inner(limits) | {"processes": 0}

    async def _disk_full(self, end: dict[str, Any]) -> bool:
        return False  # the keeper looks itself, at the end of every program

    async def snapshot(self) -> str:
        """The workspace's files as they are now; its name. Kept programs stand still meanwhile, and are not part of it."""
        async with self._turn:
            if self._copies >= DEEPEST:
                raise UsageError(f"sandbox {self.name} has {DEEPEST} snapshots; fork from one, and go on there")
            name = f"{self.name}:{len(self._snapshots)}"
            self._copies += 1
            await self._link.ask("copy", GRACE, to=str(self._copies))
            self._snapshots[name] = (f"{self.name}/snapshots/{self._copies}",)
            return name

    async def restore(self, snapshot: str) -> None:
        """The files are those of ``snapshot`` again; every program dies. Raises UsageError for a snapshot of another sandbox."""
        async with self._turn:
            (source,) = self._known(snapshot)
            await self._link.ask("lay", GRACE, source=source)


class LandlockHost(NamespaceHost):
    """``missing``: what cannot be had here, with the reason, the namespaces first."""

    sandbox: ClassVar[type[NamespaceSandbox]] = LandlockSandbox

    def __init__(self, link: Link, hello: dict[str, Any]) -> None:
        self._link = link
        self.missing: dict[str, str] = hello["missing"]
        self.is_root = False
        self.level: Level = "T1"
        self.groups = "none"
        self.landlock: int = hello["landlock"]
        self._count = 0

    def _check(self, needs: Needs) -> None:
        if LEVELS.index(needs.level) > LEVELS.index(self.level):
            raise SandboxUnavailable(
                f"the task asks for isolation {needs.level}, this backend gives T1, without namespaces (unshare: "
                f"{self.missing['namespaces']}); use the namespaces backend where the container allows user namespaces "
                "(a seccomp profile that lets unshare and mount through, or none), "
                "or accept level = 'T1'"
            )
        if needs.total_memory:
            raise SandboxUnavailable(
                "control group memory: not used at T1; the memory of all processes together is watched, not bounded. "
                "Use the namespaces backend as root, or accept that with total_memory = false"
            )
        self._check_snapshots(needs)
