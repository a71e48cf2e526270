"""Linux namespaces, control groups, seccomp and Landlock: the default backend, T2 for root and T2u for plain users."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.errors import UsageError

if TYPE_CHECKING:
    from posttrain.sandboxes.namespaces.host import NamespaceHost


@dataclass(frozen=True)
class Namespaces:
    """Namespaces, a private root, a control group where there is one, a seccomp filter, Landlock and rlimits.

    ``readable``: directories of this machine that programs may read at the same path, such as a prepared base; the system's
    programs and the interpreter's standard library always are. ``interpreter``: the Python that ``exec(python=...)`` runs in,
    this one by default. ``user``: whom the supervisor runs as, by number; root may so give up its rights, and T2 for T2u.

    A shared kernel is a shared kernel: a bug in it gets out of here. What must not happen even then needs T3.
    """

    readable: tuple[str, ...] = ()
    interpreter: str = ""
    user: int | None = None

    def __post_init__(self) -> None:
        taken = ("/", "/workspace", "/tmp", "/dev", "/proc", "/etc")
        wrong = [path for path in self.readable if not path.startswith("/") or path.rstrip("/") in taken or path == "/"]
        if wrong:
            raise UsageError(
                f"readable must hold absolute directories other than {', '.join(taken)}, not {wrong[0]!r}; "
                "name the very one that programs may read"
            )

    def open(self) -> AbstractAsyncContextManager[NamespaceHost]:
        """Starts the supervisor; all sandboxes end with the block. Raises SandboxUnavailable."""
        from posttrain.sandboxes.namespaces.host import opened

        return opened(self)
