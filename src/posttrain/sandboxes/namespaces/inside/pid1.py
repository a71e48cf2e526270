"""Pid 1 of a sandbox: forks an execution from a warm interpreter, reaps everything, freezes, kills, lays workspaces.

It holds nothing secret - it was forked from a supervisor that was started with an empty environment - and is out of the
programs' reach: another user (where there are two), not dumpable, invisible in /proc.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from . import program, rooms, tree, walls, wire
from .kernel import PR_SET_CHILD_SUBREAPER, PR_SET_DUMPABLE, bound_capabilities, last_capability, prctl, unmount

WATCH = 50  # milliseconds between looks at memory that no control group bounds


class Begun(NamedTuple):
    """An execution that runs: where it says why it could not begin, when it began, and the counters as of then."""

    trouble: int
    at: float
    counted: dict[str, float]
    cpu: int  # seconds allowed, to all of its processes together


class Init:
    """``config``: ``user`` of programs (0: the same as ours), ``lowers``, ``watched`` (bytes; 0: a control group does it).

    ``off`` and ``let`` take a wall away, so that a test can show what it is there for.
    """

    proc, workspace = "/root/proc", "/root/workspace"

    def __init__(self, control: socket.socket, config: dict[str, Any], counters: dict[str, int]) -> None:
        self.control, self.config, self.counters, self.poll = control, config, counters, select.poll()
        self.lowers = [f"/layers/{i}" for i in range(len(config["lowers"]))] or ["/store/empty"]
        self.layer = 0
        self.running: dict[int, int] = {}  # pid -> the execution's number
        self.kept: set[int] = set()
        self.over, self.spent = "", 0.0  # the watch is ending all for what they hold, or for so much CPU time
        self.begun: dict[int, Begun] = {}
        self.rules = self._rules(config["off"])
        self._look()

    def _rules(self, off: list[str]) -> dict[str, Any]:
        """What ``program.confine`` holds every program to."""
        rules: dict[str, Any] = {
            "chroot": "/root",
            "user": self.config["user"] if self.config["user"] else None,
            "filter": b"" if "seccomp" in off else walls.program(walls.NETWORK_OF_ITS_OWN, self.config["let"]),
            "ruleset": -1,
        }
        if "landlock" not in off and walls.landlock_version():
            rules["ruleset"] = -2  # made anew whenever the workspace is laid
        return rules

    def _look(self) -> None:
        """Landlock names files, and a new workspace is another file."""
        if self.rules["ruleset"] == -1:
            return
        if self.rules["ruleset"] >= 0:
            os.close(self.rules["ruleset"])
        self.rules["ruleset"] = walls.ruleset(["/root"], ["/root/workspace", "/root/tmp", "/root/dev"], networks=True)

    def serve(self) -> None:
        """Until the controller closes its end; the kernel then kills all that is left."""
        awake, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        gc.collect()
        gc.freeze()
        wire.send(self.control, {"ready": True, "landlock": walls.landlock_version()})
        self.poll.register(self.control, select.POLLIN)
        self.poll.register(awake, select.POLLIN)
        watched = time.monotonic()
        while True:
            ready = {fd for fd, _ in self.poll.poll(WATCH if self.running else None)}
            if awake in ready:
                os.read(awake, 4096)
                self._reap()
            self._hear(ready - {awake, self.control.fileno()})
            if self.running and time.monotonic() - watched >= WATCH / 1000:
                watched = time.monotonic()  # by the clock: a program may keep us busy with its dead
                self._watch()
            if self.control.fileno() in ready:
                received = wire.receive(self.control)
                if received is None:
                    self._quit()
                    return
                order, fds = received
                try:
                    answer = getattr(self, "do_" + order["do"])(order, fds)
                except OSError as error:
                    answer = {"failed": str(error), "errno": error.errno}
                finally:
                    for fd in fds:
                        os.close(fd)
                if answer is not None:
                    wire.send(self.control, {"id": order["id"], **answer})

    def _hear(self, ready: set[int]) -> None:
        """What else was polled for."""

    def _quit(self) -> None:
        """Before this process ends, and with it every process here."""

    def _programs(self) -> list[tree.Row]:
        """Every process of every program."""
        return [r for r in tree.rows(self.proc) if r.pid != 1]

    def _strike(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def _watch(self) -> None:
        """Ends what no rlimit can: the CPU time of many processes, and their memory where no control group bounds it."""
        programs = self._programs()
        self.over = self._too_much(programs)
        if self.over:
            self._kill_all()
            self.over = ""
            return
        cpu, kept = self._cpu_now(programs), {self.running[pid] for pid in self.kept}  # a kept one has its own limit only
        for number, begun in self.begun.items():
            if number not in kept and cpu - begun.counted["cpu"] > begun.cpu + 0.1:
                self.spent = cpu - begun.counted["cpu"]
                self._clear()
                return

    def _too_much(self, programs: list[tree.Row]) -> str:
        """The status with which all must end now, or nothing."""
        watched = self.config["watched"]
        return "memory" if watched and tree.resident(self.proc, [r.pid for r in programs], watched) > watched else ""

    def _cpu_now(self, programs: list[tree.Row]) -> float:
        """CPU seconds of all programs so far, those that are alive included."""
        cpu = self._counted()["cpu"]
        if "cpu" not in self.counters:
            cpu += sum(r.ticks for r in programs) / os.sysconf("SC_CLK_TCK")
        return cpu

    def do_exec(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any] | None:
        """Starts one; its end is told later, by ``_reap``."""
        os.chmod(self.workspace, 0o755)  # an earlier program may have shut it
        trouble, tell = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            pid = os.fork()
        except OSError:  # a kept program holds every process
            os.close(trouble)
            os.close(tell)
            raise
        if not pid:
            if order["keep"]:
                prctl(PR_SET_CHILD_SUBREAPER, 1)
            program.become(self.rules, order, fds, tell)
        os.close(tell)
        self.running[pid] = order["id"]
        self.begun[order["id"]] = Begun(trouble, time.monotonic(), self._counted(), order["limits"]["cpu"])
        if order["keep"]:
            self.kept.add(pid)
        return None

    def _counted(self) -> dict[str, float]:
        """Where every counter stands: CPU seconds of all programs, processes killed for memory, forks refused."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = {"cpu": used.ru_utime + used.ru_stime, "oom": 0.0, "refused": 0.0}
        for name, fd in self.counters.items():
            text = os.pread(fd, 4096, 0).decode()
            if name == "cpu":
                usage = _value(text, "usage_usec")
                out["cpu"] = int(text) / 1e9 if usage is None else usage / 1e6
            else:
                out[name] = _value(text, "oom_kill" if name == "oom" else "max") or 0
        return out

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid in self.running:
                self._ended(pid, status, usage.ru_maxrss * 1024, self._clear)

    def _ended(self, pid: int, status: int, peak: int, clear: Callable[[], int] = lambda: 0) -> None:
        """Tells the controller how an execution ended, and clears away what it left."""
        number = self.running.pop(pid)
        self.kept.discard(pid)
        left = clear()
        begun = self.begun.pop(number)
        try:
            trouble = os.read(begun.trouble, 4096).decode(errors="replace")
        except BlockingIOError:
            trouble = ""
        os.close(begun.trouble)
        used = {name: value - begun.counted[name] for name, value in self._counted().items()}
        used["cpu"], self.spent = max(used["cpu"], self.spent), 0.0
        end = {"code": os.waitstatus_to_exitcode(status), "wall": time.monotonic() - begun.at, "peak": peak, "left": left}
        wire.send(self.control, {"id": number, "trouble": trouble, "over": self.over, **end, **used})

    def _clear(self) -> int:
        """Kills what an execution left behind, all but what was asked to be kept; how many there were."""
        if not self.kept:
            return self._kill_all()
        count = 0
        for _ in range(50):  # a storm forks while it is being killed
            strangers = self._strangers()
            if not strangers:
                break
            count += len(strangers)
            for pid in strangers:
                self._strike(pid, signal.SIGKILL)
            for pid in strangers:
                self._collect(pid)
        return count

    def _kill_all(self) -> int:
        count = 0
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            try:
                pid, status, usage = os.wait4(-1, 0)
            except ChildProcessError:
                return count
            count += 1
            if pid in self.running:
                self._ended(pid, status, usage.ru_maxrss * 1024)

    def _collect(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):  # then its parent lives and will reap it
            _, status, usage = os.wait4(pid, 0)
            if pid in self.running:
                self._ended(pid, status, usage.ru_maxrss * 1024)

    def _strangers(self) -> set[int]:
        """Every process that no kept program started."""
        parents = {r.pid: r.parent for r in self._programs()}
        out = set()
        for pid in parents:
            at = pid
            while at in parents and at not in self.kept:
                at = parents[at]
            if at not in self.kept:
                out.add(pid)
        return out

    def do_expire(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The wall limit: how it stood, then it dies, and all that is not kept. ``runnable``: some process wants the CPU;
        ``waited``: seconds that they stood in line for it, all together."""
        programs = self._programs()
        states = [r.state for r in programs]
        cpu, waited = self._cpu_now(programs), tree.waited(self.proc, [r.pid for r in programs])
        begun = self.begun.get(order["of"])
        self._clear()
        return {"runnable": "R" in states, "waited": waited, "cpu": cpu - (begun.counted["cpu"] if begun else cpu)}

    def do_kill(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        return {"killed": self._clear()}

    def do_freeze(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Stops every program where it stands; returns when all have stopped."""
        try:
            os.kill(-1, signal.SIGSTOP)
        except ProcessLookupError:
            return {"frozen": 0}
        until = time.monotonic() + 5
        # D: the parent of a vfork, which cannot stop before its child is gone; it does nothing either
        while any(r.state not in "TtZXD" for r in self._programs()):
            if time.monotonic() > until:
                raise OSError(errno.ETIMEDOUT, "a program did not stop within 5 s")
            select.select([], [], [], 0.0005)
        return {"frozen": len(self.running)}

    def do_thaw(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGCONT)
        return {}

    def do_copy(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """The upper layer as it is now, as a layer of its own. Programs stand still meanwhile."""
        try:
            self.do_freeze(order, fds)
            rooms.copy_layer(f"/store/{order['of']}", f"/store/{order['to']}")
        except OSError:
            rooms.remove(f"/store/{order['to']}")  # a part of it would fill the disk for ever
            raise
        finally:
            self.do_thaw(order, fds)
        return {}

    def do_lay(self, order: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """A new upper layer over ``lowers`` (of this sandbox's outer root, top first). Every program must be dead."""
        self._kill_all()
        unmount("/root/workspace")
        self.layer = order["layer"]
        self.lowers = order["lowers"]
        rooms.lay(self.config["user"] or 0, self.layer, self.lowers)
        self._look()
        return {}


def _value(text: str, key: str) -> int | None:
    return next((int(line.split()[1]) for line in text.splitlines() if line.split()[0] == key), None)


def live(control: socket.socket, config: dict[str, Any], name: str, counters: dict[str, int]) -> None:
    """The process's whole life, from within its new namespaces on. Never returns."""
    code = 1
    try:
        prctl(PR_SET_DUMPABLE, 0)
        bound_capabilities(last_capability())
        socket.sethostname("sandbox")
        _loopback()
        rooms.enter(config["place"], name, config["lowers"], config["user"] or 0, config["readable"])
        Init(control, config, counters).serve()
        code = 0
    except BaseException as error:
        wire.send(control, {"broken": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)


def _loopback() -> None:
    """Its own 127.0.0.1, up; nothing else."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1 | 64))
