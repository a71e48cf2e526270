"""The few system calls that a sandbox is made of, by ctypes. Standard library only: this runs where nothing else is importable.

Every call raises OSError with the call's name. Numbers are those of x86_64 and aarch64.
"""

from __future__ import annotations

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
ARM = os.uname().machine == "aarch64"

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 1 << 25, 1 << 26, 1 << 27, 1 << 28, 1 << 29, 1 << 30
ALL_NAMESPACES = NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
CALLS = {"clone": (56, 220), "pivot_root": (155, 41), "seccomp": (317, 277), "capset": (126, 91), "close_range": (436, 436)}
CALLS |= {"landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445), "landlock_restrict_self": (446, 446)}


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def call(name: str, *args: object) -> int:
    """A raw system call of ``CALLS``; integers are passed as longs, bytes and ctypes objects by pointer."""
    ready = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return _checked(name, int(LIBC.syscall(ctypes.c_long(CALLS[name][ARM]), *ready)))


def clone(flags: int) -> int:
    """A fork into new namespaces. The caller must have one thread; Python's own after-fork handlers do not run."""
    return call("clone", flags | 17, 0, 0, 0, 0)


def unshare(flags: int) -> None:
    """Into new namespaces."""
    _checked("unshare", LIBC.unshare(flags))


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2); ``data`` are the file system's own options."""
    result = LIBC.mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None)
    _checked(f"mount of {kind or source} at {target}", result)


def unmount(target: str, flags: int = MNT_DETACH) -> None:
    """Lazily by default: gone from the tree at once, freed when nothing uses it."""
    _checked(f"umount of {target}", LIBC.umount2(target.encode(), flags))


def bind(source: str, target: str, *, writable: bool = False, devices: bool = False) -> None:
    """``source`` also at ``target``, with what is mounted below it; setuid bits have no effect there."""
    mount(source, target, flags=MS_BIND | MS_REC)
    # flags that the mount already has are locked in a user namespace: dropping one would be refused
    held = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY | 1024 | 2048)  # noatime, nodiratime
    relative = 1 << 21 if os.statvfs(target).f_flag & 4096 else 0
    wanted = MS_NOSUID | (0 if devices else MS_NODEV) | (0 if writable else MS_RDONLY)
    mount("none", target, flags=MS_REMOUNT | MS_BIND | (held & ~4096) | relative | wanted)


def pivot_root_here(path: str) -> None:
    """``path`` becomes the root; what was the root is no longer anywhere."""
    os.chdir(path)
    call("pivot_root", b".", b".")
    unmount(".")
    os.chdir("/")


def prctl(option: int, *args: int) -> int:
    """prctl(2) with up to four numbers."""
    padded = (*args, 0, 0, 0, 0)[:4]
    return _checked(f"prctl {option}", LIBC.prctl(option, *(ctypes.c_ulong(a) for a in padded)))


def bound_capabilities(last: int) -> None:
    """No program started from here on can gain a capability; ``last`` is the highest that the kernel knows."""
    for capability in range(last + 1):
        prctl(PR_CAPBSET_DROP, capability)


def drop_capabilities() -> None:
    """Every capability leaves every set."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())


def last_capability() -> int:
    """The highest that the kernel knows."""
    with open("/proc/sys/kernel/cap_last_cap") as file:
        return int(file.read())


def close_from(first: int) -> None:
    """Closes this descriptor and all above it."""
    call("close_range", first, 0x7FFFFFFF, 0)


def memory_file(name: str, content: bytes) -> int:
    """A descriptor, at its start, of an anonymous file that holds ``content``."""
    fd = os.memfd_create(name)
    os.write(fd, content) if len(content) < 1 << 20 else _write_all(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
