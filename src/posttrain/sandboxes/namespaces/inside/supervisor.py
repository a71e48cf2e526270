"""The supervisor of all sandboxes of one controller: makes them, limits them, buries them.

It is started fresh, with an empty environment, so that what it forks holds no secret; it never runs in a sandbox's control
group, so no storm in one starves it; and it dies with its controller, taking every sandbox along.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import sys
from collections import Counter
from typing import Any

from . import pid1, program, rooms, wire
from .groups import Groups
from .kernel import (
    ALL_NAMESPACES,
    NEWNS,
    NEWUSER,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    clone,
    close_from,
    prctl,
    unmount,
    unshare,
)

FIRST_USER = 1_500_000_000  # host users of sandboxes, far from those of people; two each


PLACE = "posttrain-sandboxes-"


class Supervisor:
    """``config``: ``readable`` directories. Raises OSError where a primitive is refused."""

    dies_with_its_parent = True  # at once: the kernel ends every sandbox along with it

    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control, self.root = control, os.geteuid() == 0
        self.groups = Groups(f"posttrain-{os.getpid()}-{os.urandom(3).hex()}")
        if self.root:
            self.groups.sweep()
        self._own_mounts()
        # below /tmp, which is there everywhere; nothing of it shows outside this mount namespace
        _sweep()
        self.place = f"/tmp/{PLACE}{os.getpid()}-{os.urandom(6).hex()}"
        os.mkdir(self.place, 0o700)
        self.readable = [*rooms.interpreter(), *config["readable"]]
        rooms.make_template(self.place, self.readable)
        self.pids: dict[int, str] = {}
        self.slots: dict[str, dict[str, Any]] = {}
        self.free: list[int] = []
        self.holders: Counter[int] = Counter()  # how many sandboxes have a user
        self.users_of: dict[str, int] = {}
        self.users = 0

    def _own_mounts(self) -> None:
        uid, gid = os.geteuid(), os.getegid()
        unshare(NEWNS if self.root else NEWNS | NEWUSER)
        if not self.root:
            for file, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
                with open(f"/proc/self/{file}", "w") as out:
                    out.write(text)

    def found(self) -> dict[str, Any]:
        """What this machine gives, for the controller."""
        return {"root": self.root, "missing": self.groups.missing, "v2": self.groups.is_v2}

    def serve(self) -> None:
        awake, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        wire.send(self.control, {"ready": os.getpid(), **self.found()})
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(awake, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if awake in ready:
                os.read(awake, 4096)
                self._reap()
            if self.control.fileno() in ready:
                received = wire.receive(self.control)
                if received is None:
                    break
                order, fds = received
                try:
                    answer = getattr(self, "do_" + order["do"])(order, fds)
                except OSError as error:
                    answer = {"failed": str(error), "errno": error.errno}
                except KeyError as error:
                    answer = {"failed": f"there is no sandbox {error} any more", "errno": errno.ENOENT}
                finally:
                    for fd in fds:
                        os.close(fd)
                try:
                    wire.send(self.control, {"id": order["id"], **answer})
                except OSError:  # nobody is there any more to be answered
                    break
        self.close()

    def close(self) -> None:
        for name in list(self.slots):
            self._bury(name)
        unmount(self.place)
        os.rmdir(self.place)

    def do_create(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        name, limits = order["name"], order["limits"]
        gone = [layer for layer in order["lowers"] if layer.split("/")[0] not in self.users_of]
        if gone:
            raise OSError(errno.ENOENT, f"its layer {gone[0]} went with the sandbox that it was taken in")
        user = self.users_of[order["lowers"][0].split("/")[0]] if order["lowers"] else self._next_user()
        self.users_of[name] = user
        self.holders[user] += 1
        slot = {"user": user, "pid": 0, "layers": order["lowers"], "grouped": False, "mounted": False}
        self.slots[name] = slot
        try:
            rooms.make_store(self.place, name, limits["disk_mib"], limits["files"], user if self.root else 0)
            slot["mounted"] = True
            slot["pid"] = self._start(name, user, order, fds[0])
            if self.root and not order["ungrouped"]:
                slot["grouped"] = True
                self.groups.make(name, slot["pid"], limits["memory"], limits["pids"] + 1, limits["cpus"])
                with contextlib.suppress(OSError):  # needs a right that root may lack; programs are at 1000 in any case
                    _write(f"/proc/{slot['pid']}/oom_score_adj", "-500")
            counters = self.groups.counters(name) if slot["grouped"] else {}
            wire.send(slot["go"], {"counters": list(counters)}, tuple(counters.values()))
            for fd in counters.values():
                os.close(fd)
            slot.pop("go").close()
        except OSError:
            self._bury(name)
            raise
        return {"pid": slot["pid"]}

    def _next_user(self) -> int:
        """A fork has its parent's user, whose files it inherits; all else gets one of its own."""
        if self.free:
            return self.free.pop()
        self.users += 1
        return FIRST_USER + 2 * self.users

    def _start(self, name: str, user: int, order: dict[str, Any], control: int) -> int:
        waits, go = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        flags = ALL_NAMESPACES if "namespaces" not in order["off"] else NEWNS | NEWUSER
        pid = clone(flags)
        if not pid:
            try:
                self._become(name, order, control, waits, go)
            finally:
                os._exit(1)
        waits.close()
        self.pids[pid] = name
        self.slots[name]["go"] = go
        if self.root:
            for file in ("uid_map", "gid_map"):
                _write(f"/proc/{pid}/{file}", f"0 {user} 1\n1000 {user + 1} 1\n")
        else:
            _write(f"/proc/{pid}/setgroups", "deny")
            for file in ("uid_map", "gid_map"):
                _write(f"/proc/{pid}/{file}", "0 0 1\n")
        return pid

    def _become(self, name: str, order: dict[str, Any], control: int, waits: socket.socket, go: socket.socket) -> None:
        """In the new namespaces: waits for its users, limits and counters, then is pid 1."""
        go.close()
        received = wire.receive(waits)
        if received is None:
            return
        null = os.open("/dev/null", os.O_RDWR)
        high = [os.dup2(fd, 300 + i) for i, fd in enumerate([null, null, null, control, *received[1]])]
        for i, fd in enumerate(high):
            os.dup2(fd, i)
        close_from(len(high))
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        config: dict[str, Any] = {"place": self.place, "user": 1000 if self.root else 0}
        config |= {"readable": self.readable, "lowers": order["lowers"], "off": order["off"], "let": order["let"]}
        config["watched"] = 0 if "oom" in received[0]["counters"] else order["limits"]["memory"]
        pid1.live(socket.socket(fileno=3), config, name, {c: 4 + i for i, c in enumerate(received[0]["counters"])})

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            name = self.pids.pop(pid, None)
            if name is not None and name in self.slots:
                self.slots[name]["pid"] = 0

    def do_destroy(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        self._bury(order["name"])
        return {}

    def _bury(self, name: str) -> None:
        slot = self.slots.pop(name)
        self._kill(name, slot)
        if slot["pid"]:
            os.waitpid(slot["pid"], 0)
            self.pids.pop(slot["pid"], None)
        if slot["grouped"]:
            self.groups.remove(name)
        if slot["mounted"]:
            rooms.drop_store(self.place, name)
        self.holders[slot["user"]] -= 1
        del self.users_of[name]
        if not self.holders[slot["user"]]:
            self.free.append(slot["user"])

    def do_abort(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Everything in it dies now, its pid 1 too; returns when all are reaped."""
        slot = self.slots[order["name"]]
        self._kill(order["name"], slot)
        if slot["pid"]:
            os.waitpid(slot["pid"], 0)
            self.pids.pop(slot["pid"], None)
            slot["pid"] = 0
        return {}

    def _kill(self, name: str, slot: dict[str, Any]) -> None:
        if slot["grouped"]:
            self.groups.kill(name)
        if slot["pid"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(slot["pid"], signal.SIGKILL)

    def do_stats(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        slot = self.slots[order["name"]]
        disk = os.statvfs(f"{self.place}/stores/{order['name']}")
        out = self.groups.stats(order["name"]) if slot["grouped"] else {}
        return out | {"disk_free": disk.f_bavail * disk.f_frsize, "files_free": disk.f_ffree, "alive": bool(slot["pid"])}


def _sweep() -> None:
    """Removes the empty mount points of supervisors that were killed."""
    for name in os.listdir("/tmp"):
        pid = name.removeprefix(PLACE).partition("-")[0]
        if name.startswith(PLACE) and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(OSError):
                os.rmdir(f"/tmp/{name}")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def main(kind: type[Supervisor] = Supervisor) -> None:
    """Serves the controller whose socket's number is the first argument, until it closes its end."""
    control = socket.socket(fileno=int(sys.argv[1]))
    if kind.dies_with_its_parent:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    program.as_at_start()  # also what the controller was started without, as nohup does
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the controller decides, and closes its end
    try:
        received = wire.receive(control)
        if received is None:
            return
        prctl(PR_SET_DUMPABLE, 1)
        supervisor = kind(control, received[0])
    except OSError as error:
        wire.send(control, {"broken": str(error), "errno": error.errno})
        return
    supervisor.serve()


if __name__ == "__main__":
    main()
