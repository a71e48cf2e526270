"""Control groups, version 1 and 2: the limits that no rlimit can hold, counters, and the one way to kill a storm at once.

A group is made below the one that this process is in, so a limit that was set on us holds for what we run.
"""

from __future__ import annotations

import contextlib
import os
import select
from typing import Any

V1 = ("memory", "pids", "cpu", "cpuacct")


class Groups:
    """Where groups can be made. ``missing``: what cannot be limited here, with the reason (empty where all can)."""

    def __init__(self, tag: str) -> None:
        self.tag, self.missing = tag, {}  # type: str, dict[str, str]
        self._homes: dict[str, str] = {}  # controller -> the directory in which our groups are made
        mounts = [line.split() for line in _lines("/proc/self/mounts")]
        own: dict[str, str] = {}
        for line in _lines("/proc/self/cgroup"):
            _, names, path = line.split(":", 2)
            own |= dict.fromkeys(names.split(","), path)
        unified = next((m[1] for m in mounts if m[2] == "cgroup2"), None)
        for m in mounts:
            if m[2] == "cgroup":
                self._homes |= {c: m[1] + own.get(c, "/") for c in V1 if c in m[3].split(",")}
        self.is_v2 = unified is not None and not self._homes
        if unified is not None:
            self._homes["unified"] = unified + own.get("", "/")
        for controller in ("unified",) if self.is_v2 else (*V1, "unified"):
            self._try(controller)
        if self.is_v2 and "unified" in self._homes:
            self._delegate()

    def _try(self, controller: str) -> None:
        """By doing: makes a group and removes it."""
        home = self._homes.get(controller)
        try:
            if home is None:
                raise OSError(f"no cgroup hierarchy has {controller}")
            path = f"{home.rstrip('/')}/{self.tag}-probe"
            os.mkdir(path)
            os.rmdir(path)
        except OSError as error:
            self.missing[controller] = str(error)
            self._homes.pop(controller, None)

    def _delegate(self) -> None:
        """Version 2: controllers are handed down only by a group that has no process of its own, the root apart."""
        home = self._homes["unified"].rstrip("/")
        try:
            if os.path.exists(home + "/cgroup.type"):
                leaf = f"{home}/{self.tag}-own"
                os.makedirs(leaf, exist_ok=True)
                for pid in _lines(home + "/cgroup.procs"):
                    _write(leaf + "/cgroup.procs", pid)
            _write(home + "/cgroup.subtree_control", "+memory +pids +cpu")
        except OSError as error:
            self.missing |= dict.fromkeys(("memory", "pids", "cpu"), f"cgroup.subtree_control: {error}")

    def can(self, controller: str) -> bool:
        return controller not in self.missing and ("unified" if self.is_v2 else controller) in self._homes

    def paths(self, name: str) -> dict[str, str]:
        return {c: f"{home.rstrip('/')}/{self.tag}-{name}" for c, home in self._homes.items()}

    def make(self, name: str, pid: int, memory: int, pids: int, cpus: float) -> None:
        """A group with its limits (bytes, processes, cores), and ``pid`` in it."""
        paths = self.paths(name)
        for path in paths.values():
            os.mkdir(path)
        if self.is_v2:
            group = paths["unified"]
            limits = {"memory.max": memory, "memory.swap.max": 0, "pids.max": pids, "cpu.max": f"{int(cpus * 100_000)} 100000"}
            for file, value in limits.items():
                if self.can(file.split(".")[0]):
                    with contextlib.suppress(FileNotFoundError) if "swap" in file else contextlib.nullcontext():
                        _write(f"{group}/{file}", value)
        else:
            if "memory" in paths:
                _write(paths["memory"] + "/memory.limit_in_bytes", memory)
                with contextlib.suppress(FileNotFoundError):
                    _write(paths["memory"] + "/memory.memsw.limit_in_bytes", memory)
                with contextlib.suppress(OSError):  # buffers of sockets are counted apart in this version
                    _write(paths["memory"] + "/memory.kmem.tcp.limit_in_bytes", memory // 4)
            if "pids" in paths:
                _write(paths["pids"] + "/pids.max", pids)
            if "cpu" in paths:
                _write(paths["cpu"] + "/cpu.cfs_period_us", 100_000)
                _write(paths["cpu"] + "/cpu.cfs_quota_us", int(cpus * 100_000))
        for path in paths.values():
            _write(path + "/cgroup.procs", pid)

    def kill(self, name: str) -> bool:
        """All processes of the group at once; False where the kernel has no such call."""
        path = self.paths(name).get("unified")
        try:
            _write(f"{path}/cgroup.kill", 1)
        except OSError:
            return False
        return True

    def stats(self, name: str) -> dict[str, Any]:
        """``memory``, ``peak_memory`` in bytes, ``oom_kills``, ``pids``, ``pids_refused``, ``cpu_seconds``, where readable."""
        paths, out = self.paths(name), {}  # type: dict[str, str], dict[str, Any]
        if self.is_v2:
            group = paths.get("unified", "")
            out["memory"], out["peak_memory"] = _number(group + "/memory.current"), _number(group + "/memory.peak")
            out["oom_kills"] = _line(group + "/memory.events", "oom_kill")
            usage = _line(group + "/cpu.stat", "usage_usec")
            out["cpu_seconds"] = None if usage is None else usage / 1e6
            out["pids"], out["pids_refused"] = _number(group + "/pids.current"), _line(group + "/pids.events", "max")
        else:
            group = paths.get("memory", "")
            out["memory"] = _number(group + "/memory.usage_in_bytes")
            out["peak_memory"] = _number(group + "/memory.max_usage_in_bytes")
            out["oom_kills"] = _line(group + "/memory.oom_control", "oom_kill")
            usage = _number(paths.get("cpuacct", "") + "/cpuacct.usage")
            out["cpu_seconds"] = None if usage is None else usage / 1e9
            out["pids"] = _number(paths.get("pids", "") + "/pids.current")
            out["pids_refused"] = _line(paths.get("pids", "") + "/pids.events", "max")
        return out

    def counters(self, name: str) -> dict[str, int]:
        """Open descriptors of the counters that pid 1 reads before and after each program: ``cpu``, ``oom``, ``refused``."""
        paths, out = self.paths(name), {}  # type: dict[str, str], dict[str, int]
        v1 = {"cpu": ("cpuacct", "cpuacct.usage"), "oom": ("memory", "memory.oom_control"), "refused": ("pids", "pids.events")}
        v2 = {"cpu": ("unified", "cpu.stat"), "oom": ("unified", "memory.events"), "refused": ("unified", "pids.events")}
        for counter, (controller, file) in (v2 if self.is_v2 else v1).items():
            with contextlib.suppress(OSError, KeyError):
                out[counter] = os.open(f"{paths[controller]}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        return out

    def remove(self, name: str) -> None:
        """The group's processes must be dead; the kernel takes a moment to let go of them."""
        for path in self.paths(name).values():
            _remove(path)

    def sweep(self) -> None:
        """Removes what supervisors that were killed have left: groups whose name bears the pid of no living one."""
        prefix = self.tag.split("-", 1)[0]
        for home in set(self._homes.values()):
            for entry in os.listdir(home):
                parts = entry.split("-")
                is_ours = entry.startswith(prefix + "-") and len(parts) > 2 and parts[1].isdigit()
                if is_ours and not os.path.exists(f"/proc/{parts[1]}"):
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{home.rstrip('/')}/{entry}")


def _remove(path: str) -> None:
    for pause in (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1):
        select.select([], [], [], pause)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return
        except OSError:
            continue
        return
    raise OSError(f"{path} still holds processes")


def _lines(path: str) -> list[str]:
    with open(path) as file:
        return file.read().splitlines()


def _write(path: str, value: object) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def _number(path: str) -> int | None:
    try:
        with open(path) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _line(path: str, key: str) -> int | None:
    try:
        with open(path) as file:
            return next((int(line.split()[1]) for line in file if line.split()[0] == key), None)
    except OSError:
        return None
