"""The two walls inside a sandbox: a seccomp denylist that answers with an errno, and Landlock.

A denylist, because programs that meet an unknown but harmless call must go on: an allowlist kills ordinary code on ordinary
machines. Calls that are refused say EPERM, as they would to a plain user; ``clone3`` says ENOSYS, so that libc falls back
to ``clone``, whose flags a filter can read.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence

from .kernel import ARM, NEWCGROUP, NEWIPC, NEWNET, NEWNS, NEWPID, NEWUSER, NEWUTS, call

EPERM, ENOSYS, EOPNOTSUPP, EAFNOSUPPORT = 1, 38, 95, 97
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
NEW_NAMESPACES = NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET

# What is refused, with its number on x86_64 and aarch64 (None: not there).
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # mounts and roots
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "open_tree": (428, 428), "move_mount": (429, 429),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    # namespaces
    "unshare": (272, 97), "setns": (308, 268),
    # other processes' memory and descriptors
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "move_pages": (279, 239), "migrate_pages": (256, 238),
    # keys, programs in the kernel, its ways around a filter
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "memfd_secret": (447, 447), "fanotify_init": (300, 262), "lookup_dcookie": (212, 18),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "syslog": (103, 116), "iopl": (172, None), "ioperm": (173, None), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58), "uselib": (134, None), "_sysctl": (156, None),
    # the clock
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    # files by handle
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # quotas and shared files of the whole host: watches see what others do, and both run out for all
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "io_setup": (206, 0),
    # what would outlive its process inside the sandbox
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semctl": (66, 191), "semop": (65, 193),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180),
}  # fmt: skip
# Attributes of files lie in kernel memory that no limit counts; programs take "not supported" for an answer.
ATTRIBUTES = {"setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463)}
# Where programs have no user and no mounts of their own: what Landlock does not cover. Attributes of files: what can be asked
# (``asked.py`` does it, for the sandbox's own files) and what is refused; memory in files that nobody maps; unreadable processes.
ASKED = {"chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "utimensat": (280, 88)}
REFUSED_ALONE: dict[str, tuple[int | None, int | None]] = {
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "file_setattr": (469, 469), "memfd_create": (319, 279),
}  # fmt: skip
# Turns for the CPU: of oneself only. Each with the arguments that must be 0 (ioprio_set: 1 means a process).
OWN_ONLY = {"sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118)}
OWN_ONLY |= {"sched_setattr": (314, 274)}
SETPRIORITY, IOPRIO_SET, PRCTL, PR_SET_DUMPABLE = (141, 140), (251, 30), (157, 167), 4
SOCK_STREAM, SOCK_SEQPACKET = 1, 5
NETWORK_OF_ITS_OWN = (AF_UNIX, AF_INET, AF_INET6)
PRLIMIT = (302, 261)
SOCKET, SOCKETPAIR, CLONE, CLONE3, IOCTL = ((41, 198), (53, 199), (56, 220), (435, 435), (16, 29))
ARCH = 0xC00000B7 if ARM else 0xC000003E

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, ERRNO, KILL, ASK = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
DENY = (RETURN, 0, 0, ERRNO | EPERM)
NUMBER, ARCHITECTURE, ARGUMENT = 0, 4, 16  # offsets into the call's record; arguments are 8 bytes apart, low half first


def program(families: Sequence[int], leave_out: str = "", *, alone: bool = False, listened: bool = False) -> bytes:
    """The filter, ready for the kernel. ``families``: socket families that are allowed; ``leave_out``: a call to let through,
    so that a test can show that this very rule is what stops it. ``alone``: no namespaces help; ``listened``: who installs it
    listens for what is asked, which is refused otherwise."""
    out: list[tuple[int, int, int, int]] = _alone(leave_out, listened) if alone else []

    def refuse_if(number: int | None, errno: int) -> None:
        if number is not None:
            out.extend([(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | errno)])

    start = [(LOAD, 0, 0, ARCHITECTURE), (JUMP_EQUAL, 1, 0, ARCH), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    if not ARM:
        start += [(JUMP_AT_LEAST, 0, 1, 0x40000000), (RETURN, 0, 0, ERRNO | ENOSYS)]  # the x32 numbers
    out = start + out
    for name, numbers in REFUSED.items():
        if name != leave_out:
            refuse_if(numbers[ARM], EPERM)
    for name, numbers in ATTRIBUTES.items():
        if name != leave_out:
            refuse_if(numbers[ARM], EOPNOTSUPP)
    if leave_out != "prlimit64":  # of itself only: pid 1's limits are every later program's
        out += [(JUMP_EQUAL, 0, 4, PRLIMIT[ARM]), (LOAD, 0, 0, ARGUMENT), (JUMP_EQUAL, 0, 1, 0)]
        out += [(RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERRNO | EPERM)]
    if leave_out != "clone":
        refuse_if(CLONE3[ARM], ENOSYS)
        out += [(JUMP_EQUAL, 0, 4, CLONE[ARM]), (LOAD, 0, 0, ARGUMENT), (JUMP_ANY_BIT, 0, 1, NEW_NAMESPACES)]
        out += [(RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]
    if leave_out != "ioctl":
        out += [(JUMP_EQUAL, 0, 5, IOCTL[ARM]), (LOAD, 0, 0, ARGUMENT + 8), (JUMP_EQUAL, 1, 0, TIOCSTI)]
        out += [(JUMP_EQUAL, 0, 1, TIOCLINUX), (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]
    if leave_out != "socket":
        for number, allowed in ((SOCKET[ARM], families), (SOCKETPAIR[ARM], (AF_UNIX,))):
            tests = [(JUMP_EQUAL, len(allowed) - i, 0, family) for i, family in enumerate(allowed)]
            out += [(JUMP_EQUAL, 0, len(tests) + 3, number), (LOAD, 0, 0, ARGUMENT), *tests]
            out += [(RETURN, 0, 0, ERRNO | EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)]
    out.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in out)


def _alone(leave_out: str, listened: bool) -> list[tuple[int, int, int, int]]:
    """Lines for where no namespaces help; the call's number is loaded, and still is after each that does not return."""
    out: list[tuple[int, int, int, int]] = []
    for name, numbers in {**ASKED, **REFUSED_ALONE}.items():
        number = numbers[ARM]
        if name != leave_out and number is not None:
            out += [(JUMP_EQUAL, 0, 1, number), (RETURN, 0, 0, ASK if listened and name in ASKED else ERRNO | EPERM)]
    fixed: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {name: (numbers, (0,)) for name, numbers in OWN_ONLY.items()}
    fixed |= {"setpriority": (SETPRIORITY, (0, 0)), "ioprio_set": (IOPRIO_SET, (1, 0))}
    for name, (both, wanted) in fixed.items():
        if name != leave_out:
            tests = [part for i, v in enumerate(wanted) for part in ((LOAD, 0, 0, ARGUMENT + 8 * i), (JUMP_EQUAL, 1, 0, v), DENY)]
            out += [(JUMP_EQUAL, 0, len(tests) + 1, both[ARM]), *tests, (RETURN, 0, 0, ALLOW)]
    if leave_out != "prctl":
        out += [(JUMP_EQUAL, 0, 4, PRCTL[ARM]), (LOAD, 0, 0, ARGUMENT), (JUMP_EQUAL, 0, 1, PR_SET_DUMPABLE), DENY]
        out += [(RETURN, 0, 0, ALLOW)]
    if leave_out != "socketpair":  # a datagram one could still send to any address
        out += [(JUMP_EQUAL, 0, 6, SOCKETPAIR[ARM]), (LOAD, 0, 0, ARGUMENT + 8), (AND, 0, 0, 0xF)]
        out += [(JUMP_EQUAL, 2, 0, SOCK_STREAM), (JUMP_EQUAL, 1, 0, SOCK_SEQPACKET), DENY, (LOAD, 0, 0, NUMBER)]
    return out


def install(filter_: bytes, *, listened: bool = False) -> int:
    """From here on, for this process and all that come from it. Needs no_new_privs. ``listened``: gives the descriptor at which
    what is asked arrives."""
    lines = ctypes.create_string_buffer(filter_, len(filter_))
    record = struct.pack("HxxxxxxP", len(filter_) // 8, ctypes.addressof(lines))
    return call("seccomp", 1, 8 if listened else 0, ctypes.create_string_buffer(record, len(record)))


# Landlock: rights over files, by the version of its interface that brought them.
READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read files, read directories
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
NET_BIND_AND_CONNECT, SCOPES = 0b11, 0b11  # TCP; abstract unix sockets and signals to processes outside


def landlock_version() -> int:
    """0 where the kernel has none."""
    try:
        return call("landlock_create_ruleset", 0, 0, 1)
    except OSError:
        return 0


def ruleset(readable: Sequence[str], writable: Sequence[str], *, networks: bool) -> int:
    """A descriptor for ``restrict``: files elsewhere cannot be opened; without ``networks`` no TCP, where the kernel can."""
    version = landlock_version()
    rights = RIGHTS[min(version, 5)]
    record = struct.pack("QQQ", rights, 0 if networks or version < 4 else NET_BIND_AND_CONNECT, SCOPES if version >= 6 else 0)
    record = record[: 8 if version < 4 else 16 if version < 6 else 24]
    fd = call("landlock_create_ruleset", ctypes.create_string_buffer(record, len(record)), len(record), 0)
    for paths, allowed in ((readable, READ), (writable, rights)):
        for path in paths:
            is_dir = os.path.isdir(path)
            of_files = 1 << 0 | 1 << 1 | 1 << 2 | (rights & (1 << 14 | 1 << 15))  # execute, write, read, truncate, ioctl
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", allowed & (rights if is_dir else of_files), place)
            call("landlock_add_rule", fd, 1, ctypes.create_string_buffer(rule, len(rule)), 0)
            os.close(place)
    return fd


def restrict(ruleset_fd: int) -> None:
    """From here on, for this process and all that come from it."""
    call("landlock_restrict_self", ruleset_fd, 0)
