"""The supervisor where no namespaces can be made: keeps a directory and a keeper for each sandbox, and buries both.

It adopts what a keeper that dies leaves behind. It does not die at once with its controller, as the other one does, because
nothing but itself would end the programs then: it sees the controller's end of the socket close, and ends them all first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import tempfile
import time
from typing import Any

from . import files, keeper, rooms, tree, walls
from .kernel import NEWUSER, PR_SET_NO_NEW_PRIVS, close_from, prctl, unshare
from .supervisor import Supervisor

PLACE = "posttrain-landlock-"
LANDLOCK = 6  # the version whose scopes keep signals and abstract sockets inside
PATIENCE = 5.0  # seconds that a keeper may take to end its programs before it is killed and they are ended from here


class Landlocked(Supervisor):
    """``config``: ``readable`` directories. Raises OSError where a primitive is refused."""

    dies_with_its_parent = False

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control = control
        self.landlock = walls.landlock_version()
        self._demand()
        self.missing = {"namespaces": _tried(lambda: unshare(NEWUSER)) or "they can be made here: the other backend holds more"}
        asked = _tried(lambda: walls.install(walls.program((), alone=True, listened=True), listened=True))
        self.listened = not asked
        if asked:
            self.missing["chmod"] = f"{asked}; programs cannot change modes and times of files"
        _sweep()
        self.place = os.path.realpath(tempfile.mkdtemp(prefix=PLACE, dir="/tmp"))
        self.lock = os.open(self.place + "/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX)  # held as long as we live: what nobody holds may be swept
        self.readable = [*rooms.interpreter(), *config["readable"]]
        self.pids: dict[int, str] = {}
        self.slots: dict[str, dict[str, Any]] = {}

    def _demand(self) -> None:
        if os.geteuid() == 0:
            raise OSError(errno.EPERM, "programs would run as root, whom no limit on processes binds")
        if self.landlock < LANDLOCK:
            raise OSError(
                errno.EOPNOTSUPP,
                f"Landlock: this kernel has version {self.landlock} of its interface, {LANDLOCK} is needed (Linux 6.12): "
                "before it, programs could signal the user's other processes",
            )
        refused = _tried(lambda: walls.install(walls.program((), alone=True)))
        if refused:
            raise OSError(errno.EPERM, f"seccomp: {refused}")
        os.close(os.pidfd_open(os.getpid()))

    def found(self) -> dict[str, Any]:
        return {"missing": self.missing, "landlock": self.landlock}

    def close(self) -> None:
        for name in list(self.slots):
            self._bury(name)
        files.remove(self.place)

    def do_create(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        name, limits = order["name"], order["limits"]
        source = ""
        for layer in order["lowers"]:
            source = f"{self.place}/{layer}"
            if layer.split("/")[0] not in self.slots or not os.path.isdir(source):
                raise OSError(errno.ENOENT, f"its snapshot {layer} went with the sandbox that it was taken in")
        home = f"{self.place}/{name}"
        os.mkdir(home, 0o700)
        config = {"home": home, "source": source, "readable": self.readable, "lowers": [], "user": 0, "watched": limits["memory"]}
        config |= {"pids": limits["pids"], "disk": limits["disk_mib"] << 20, "files": limits["files"], "listened": self.listened}
        config |= {"off": order["off"], "let": order["let"], "others": _processes_of_the_user()}
        lifeline, ours = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if not pid:
            try:
                self._become(fds[0], lifeline, config)
            finally:
                os._exit(1)
        os.close(lifeline)
        self.pids[pid] = name
        self.slots[name] = {"pid": pid, "lifeline": ours, "limits": limits}
        return {"pid": pid}

    def _become(self, *args: Any) -> None:
        """Only the keeper's own descriptors: a lifeline of another sandbox held here would keep that one alive."""
        control, lifeline, config = args
        null = os.open("/dev/null", os.O_RDWR)
        high = [os.dup2(fd, 300 + i) for i, fd in enumerate([null, null, null, control, lifeline])]
        for i, fd in enumerate(high):
            os.dup2(fd, i, inheritable=False)
        close_from(len(high))
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        keeper.live(socket.socket(fileno=3), config, 4)

    def _reap(self) -> None:
        """Keepers that ended, and what they left, which is ours by then."""
        died = False
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if not pid:
                break
            name = self.pids.pop(pid, None)
            if name is not None and name in self.slots:
                self.slots[name]["pid"] = 0
                died = True
        if died:
            self._end_orphans()

    def _end_orphans(self) -> None:
        """What came from us and from no living keeper."""
        me, until = os.getpid(), time.monotonic() + PATIENCE
        while time.monotonic() < until:
            rows = {r.pid: r for r in tree.descendants(me)}
            orphans = [r for r in rows.values() if not self._is_kept(r, rows)]
            for r in orphans:
                tree.strike(me, r.pid, signal.SIGKILL)
                if r.parent == me:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(r.pid, 0 if r.state == "Z" else os.WNOHANG)
            if not orphans:
                return
            select.select([], [], [], 0.001)

    def _is_kept(self, r: tree.Row, rows: dict[int, tree.Row]) -> bool:
        while r.pid not in self.pids and r.parent in rows:
            r = rows[r.parent]
        return r.pid in self.pids

    def _bury(self, name: str) -> None:
        slot = self.slots.pop(name)
        self._kill(name, slot)
        files.remove(f"{self.place}/{name}")

    def do_abort(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Everything in it dies now, its keeper too; returns when all are reaped."""
        self._kill(order["name"], self.slots[order["name"]])
        return {}

    def _kill(self, name: str, slot: dict[str, Any]) -> None:
        """The keeper ends its programs when the lifeline closes. A keeper that does not is killed, and they are ended here."""
        if slot["lifeline"] >= 0:
            os.close(slot["lifeline"])
            slot["lifeline"] = -1
        pid = slot["pid"]
        if not pid:
            return
        held = os.pidfd_open(pid)
        try:
            if not select.select([held], [], [], PATIENCE)[0]:
                signal.pidfd_send_signal(held, signal.SIGKILL)
            os.waitpid(pid, 0)
        finally:
            os.close(held)
        self.pids.pop(pid, None)
        slot["pid"] = 0
        self._end_orphans()

    def do_stats(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        slot = self.slots[order["name"]]
        limits, home = slot["limits"], f"{self.place}/{order['name']}"
        bound = (limits["disk_mib"] << 20, limits["files"])
        rows = tree.descendants(slot["pid"]) if slot["pid"] else []
        both = [files.used(f"{home}/{part}", bound) for part in ("workspace", "tmp") if os.path.isdir(f"{home}/{part}")]
        memory = tree.resident("/proc", [r.pid for r in rows], limits["memory"])
        out = {"memory": memory, "pids": sum(max(1, r.threads) for r in rows), "alive": bool(slot["pid"])}
        out["disk_free"] = max(0, bound[0] - sum(size for size, _ in both))
        return out | {"files_free": max(0, bound[1] - sum(count for _, count in both))}


def _tried(what: Any) -> str:
    """Why it is refused, found by doing it in a child; empty where it is not."""
    trouble, tell = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if not pid:
        try:
            prctl(PR_SET_NO_NEW_PRIVS, 1)
            what()
        except OSError as error:
            os.write(tell, f"{error.strerror} (errno {error.errno})".encode())
        finally:
            os._exit(0)
    os.close(tell)
    said = os.read(trouble, 4096).decode(errors="replace")
    os.close(trouble)
    os.waitpid(pid, 0)
    return said


def _processes_of_the_user() -> int:
    """As the kernel counts them against RLIMIT_NPROC, wherever they are: found by forking under ever closer limits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    low, high = 0, 1 << 22 if hard == resource.RLIM_INFINITY else hard
    try:
        while low < high:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_NPROC, (middle, hard))
            try:
                pid = os.fork()
            except BlockingIOError:
                low = middle + 1
                continue
            if not pid:
                os._exit(0)
            os.waitpid(pid, 0)
            high = middle
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    return low


def _sweep() -> None:
    """Removes what supervisors of this user that were killed have left: directories whose lock nobody holds."""
    for name in os.listdir("/tmp"):
        path = f"/tmp/{name}"
        if not name.startswith(PLACE):
            continue
        with contextlib.suppress(OSError):
            if os.lstat(path).st_uid != os.geteuid():
                continue
            lock = os.open(path + "/lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                files.remove(path)
            finally:
                os.close(lock)
