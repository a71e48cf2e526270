"""Landlock and a seccomp filter only: level T1, for containers in which no namespaces can be made."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.errors import UsageError
from posttrain.sandboxes.namespaces import Namespaces

if TYPE_CHECKING:
    from posttrain.sandboxes.landlock.host import LandlockHost


@dataclass(frozen=True)
class Landlock:
    """Landlock, a seccomp filter, rlimits and a watch, where no namespaces can be made: less than T2u, see docs/sandboxes.md.

    ``readable``: directories of this machine that programs may read; the system's programs and the interpreter's standard
    library always are. ``interpreter``: the Python that ``exec(python=...)`` runs in, this one by default. ``user``: whom
    programs run as, by number; the user who asks by default. Root must name another, who then has no processes of root's
    within reach.
    """

    readable: tuple[str, ...] = ()
    interpreter: str = ""
    user: int | None = None

    def __post_init__(self) -> None:
        Namespaces(readable=self.readable)  # the same directories can be given
        if self.user is not None and self.user <= 0:
            raise UsageError(f"programs cannot run as user {self.user} here: no limit on processes binds root; name a plain user")

    def open(self) -> AbstractAsyncContextManager[LandlockHost]:
        """Starts the supervisor; all sandboxes end with the block. Raises SandboxUnavailable."""
        from posttrain.sandboxes.landlock.host import opened

        return opened(self)
