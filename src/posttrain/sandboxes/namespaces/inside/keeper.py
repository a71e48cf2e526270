"""The keeper of a sandbox that has no namespaces: what pid 1 is to the others, among the user's own processes.

Programs run as the same user as everything else of that user's here. So what they started is found by descent - they are adopted
by the keeper when their parents die - and signals go to verified descendants only, never to a group, a session or all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import socket
import stat
import time
from typing import Any

from . import asked, files, tree, walls, wire
from .kernel import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, prctl
from .pid1 import Init
from .rooms import DEVICES, ETC_OF_HOST, SYSTEM

SPARE = 512  # processes: the kernel counts all of the user's, and others of the user's come and go. The watch holds the limit
LOOK = 0.1  # seconds between looks at the disk, at least
ALL = (1 << 62, 1 << 62)
SNAPSHOTS = 8  # times the disk that all snapshots of a sandbox may take


class Keeper(Init):
    """``config`` besides: ``home`` (its directory), ``pids``, ``disk`` (bytes), ``files``, ``others`` (the user's processes),
    ``listened``. ``lifeline`` closes with the supervisor."""

    proc = "/proc"

    def __init__(self, control: socket.socket, config: dict[str, Any], lifeline: int) -> None:
        self.home: str = config["home"]
        self.workspace = self.home + "/workspace"
        self.places = [self.workspace, self.home + "/tmp"]
        super().__init__(control, config, {})
        self.lifeline = lifeline
        self.limit = self.allowed = (int(config["disk"]), int(config["files"]))
        self.next_watch = self.next_look = 0.0
        self.asking: dict[int, socket.socket] = {}  # where a new execution hands over the descriptor of its questions
        self.questions: set[int] = set()
        self.poll.register(lifeline, select.POLLIN)

    def _rules(self, off: list[str]) -> dict[str, Any]:
        readable = [f"/{name}" for name in SYSTEM] + [f"/etc/{name}" for name in ETC_OF_HOST] + self.config["readable"]
        devices = [f"/dev/{name}" for name in DEVICES]
        paths = (
            [p for p in readable if os.path.exists(p)] + ["/proc/self"],
            self.places + [d for d in devices if os.path.exists(d)],
        )
        self.listens = self.config["listened"] and "seccomp" not in off
        filter_ = walls.program((), self.config["let"], alone=True, listened=self.listens)
        return {
            "chroot": "",
            "user": None,
            "filter": b"" if "seccomp" in off else filter_,
            "ruleset": -1,
            "paths": None if "landlock" in off else paths,
            "places": {"HOME": self.workspace, "TMPDIR": self.places[1]},
        }

    def _programs(self) -> list[tree.Row]:
        return tree.descendants(os.getpid())

    def _strike(self, pid: int, number: int) -> None:
        tree.strike(os.getpid(), pid, number)

    def _quit(self) -> None:
        self.running.clear()  # nobody is told how they ended
        self._kill_all()

    def do_exec(self, order: dict[str, Any], fds: list[int]) -> None:
        order["cwd"] = self.workspace
        order["limits"]["processes"] = self.config["others"] + self.config["pids"] + SPARE
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.rules["asks"] = theirs.fileno() if self.listens else -1
            try:
                super().do_exec(order, fds)
            except OSError:
                ours.close()
                raise
        self.asking[ours.fileno()] = ours
        self.poll.register(ours, select.POLLIN)

    def _hear(self, ready: set[int]) -> None:
        for fd in ready:
            if fd == self.lifeline:
                self._quit()
                os._exit(1)
            elif fd in self.asking:
                self._adopt_questions(fd)
            elif fd in self.questions:
                try:
                    asked.answer(fd, self.places)
                except OSError as error:
                    if error.errno == errno.ENOENT and not self._hung_up(fd):
                        continue  # who asked has died; others may still ask
                    self.poll.unregister(fd)
                    self.questions.discard(fd)
                    os.close(fd)

    def _adopt_questions(self, fd: int) -> None:
        self.poll.unregister(fd)
        with self.asking.pop(fd) as sock:
            received = wire.receive(sock)
        if received is not None:  # else it ended before it began
            for listener in received[1]:
                self.questions.add(listener)
                self.poll.register(listener, select.POLLIN)

    def _hung_up(self, fd: int) -> bool:
        """Nobody is left who could ask."""
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def _watch(self) -> None:
        """As often as asked, unless looking takes so long that it would take the machine's time."""
        began = time.monotonic()
        if began >= self.next_watch:
            super()._watch()
            self.next_watch = began + 10 * (time.monotonic() - began)

    def _too_much(self, programs: list[tree.Row]) -> str:
        if sum(max(1, r.threads) for r in programs) > self.config["pids"]:
            return "pids"
        now = time.monotonic()
        if now >= self.next_look:
            disk = self._disk(programs, self.allowed)
            self.next_look = now + max(LOOK, 20 * (time.monotonic() - now))
            if disk[0] > self.allowed[0] or disk[1] > self.allowed[1]:
                return "disk"
        return super()._too_much(programs)

    def _disk(self, programs: list[tree.Row], enough: tuple[int, int]) -> tuple[int, int]:
        """(bytes, files) in the workspace and its /tmp, and in files that are deleted but still open; ``enough`` ends a count."""
        first, second = (files.used(place, enough) for place in self.places)
        unlinked = {}
        for r in programs:
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{r.pid}/fd"):
                    status = os.stat(f"/proc/{r.pid}/fd/{fd}")
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                        unlinked[status.st_dev, status.st_ino] = status.st_blocks * 512
        return first[0] + second[0] + sum(unlinked.values()), first[1] + second[1] + len(unlinked)

    def _ended(self, pid: int, status: int, peak: int, clear: Any = lambda: 0) -> None:
        """A disk that is found too full at the end says so too; what is there then is no fault of the next program's."""
        if pid not in self.kept:
            full, before = self._at_the_end(status), self.over
            self.over = before or full
            super()._ended(pid, status, peak, clear)
            self.over = before
        else:
            super()._ended(pid, status, peak, clear)

    def _at_the_end(self, status: int = 0) -> str:
        """A program that fails with its disk full is told so, as one whose write was refused."""
        disk = self._disk([], ALL)  # a part of it would let the next program be over what is counted then
        over = disk[0] > self.allowed[0] or disk[1] > self.allowed[1]
        over = over or (status != 0 and (disk[0] >= self.limit[0] or disk[1] >= self.limit[1]))
        self.allowed = (max(self.limit[0], disk[0]), max(self.limit[1], disk[1]))
        return "disk" if over else ""

    def _kill_all(self) -> int:
        count, me = 0, os.getpid()
        ended: list[tuple[int, int, int]] = []  # told when nothing runs any more
        while True:
            while True:
                try:
                    pid, status, usage = os.wait4(-1, os.WNOHANG)
                except ChildProcessError:  # nothing below us either: orphans would be ours
                    for each in ended:
                        self._ended(*each)
                    return count
                if not pid:
                    break
                count += 1
                if pid in self.running:
                    ended.append((pid, status, usage.ru_maxrss * 1024))
            for _ in range(10):  # stopped first: what is killed makes room for what still forks
                moving = [r.pid for r in self._programs() if r.state not in "TtZX"]
                for pid in moving:
                    tree.strike(me, pid, signal.SIGSTOP)
                if len(moving) < 2:
                    break
            for r in self._programs():
                if r.state not in "ZX":
                    tree.strike(me, r.pid, signal.SIGKILL)
            select.select([], [], [], 0.0005)

    def do_freeze(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Stops every program where it stands; returns when all have stopped."""
        until = time.monotonic() + 5
        while True:
            moving = [r.pid for r in self._programs() if r.state not in "TtZXD"]
            if not moving:
                return {"frozen": len(self.running)}
            if time.monotonic() > until:
                raise OSError(errno.ETIMEDOUT, "a program did not stop within 5 s")
            for pid in moving:
                self._strike(pid, signal.SIGSTOP)
            select.select([], [], [], 0.0005)

    def do_thaw(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        for r in self._programs():
            self._strike(r.pid, signal.SIGCONT)
        return {}

    def do_copy(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The workspace as it is now, as a snapshot. Programs stand still meanwhile."""
        target = f"{self.home}/snapshots/{order['to']}"
        try:
            self.do_freeze(order, fds)
            bound = (SNAPSHOTS * self.limit[0], SNAPSHOTS * self.limit[1])
            taken, more = files.used(f"{self.home}/snapshots", bound), files.used(self.workspace, bound)
            if taken[0] + more[0] > bound[0] or taken[1] + more[1] > bound[1]:
                raise OSError(errno.ENOSPC, f"No space left for one more snapshot: all may take {SNAPSHOTS} times the disk")
            files.copy(self.workspace, target)
        except OSError:
            shutil.rmtree(target, ignore_errors=True)
            raise
        finally:
            self.do_thaw(order, fds)
        return {}

    def do_lay(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The workspace is that of a snapshot of this sandbox again; every program dies."""
        self._kill_all()
        files.remove(self.workspace)
        files.copy(f"{os.path.dirname(self.home)}/{order['source']}", self.workspace)
        self._at_the_end()
        return {}


def live(control: socket.socket, config: dict[str, Any], lifeline: int) -> None:
    """The process's whole life, from the fork on. Never returns."""
    code = 1
    try:
        prctl(PR_SET_DUMPABLE, 0)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        for part in ("tmp", "snapshots"):
            os.mkdir(f"{config['home']}/{part}", 0o700)
        if config["source"]:
            files.copy(config["source"], config["home"] + "/workspace")
        else:
            os.mkdir(config["home"] + "/workspace", 0o755)
        Keeper(control, config, lifeline).serve()
        code = 0
    except BaseException as error:
        wire.send(control, {"broken": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)
