"""One execution, from the fork on: gives up every right, then runs the program. Never returns."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import signal
import socket
import sys
from typing import Any

from . import walls, wire
from .kernel import PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, close_from, drop_capabilities, prctl

FAILED = 125  # exit code when the sandbox, not the program, failed before the program began
LOCALE = {"PATH": "/usr/bin:/bin", "HOME": "/workspace", "LANG": "C.UTF-8", "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}

# What this process and its parents have set for themselves; the supervisor resets all others, once.
TOUCHED = frozenset({signal.SIGCHLD, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGTERM, signal.SIGXFSZ})


def as_at_start(numbers: frozenset[int] = frozenset(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})) -> None:
    """Signals do again what they do by default."""
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def confine(rules: dict[str, Any], limits: dict[str, int]) -> None:
    """What holds whatever the program then does. ``rules``: made once by the sandbox (filter, ruleset, user, root), or ``paths``
    to make a ruleset of, which then names this process's own /proc/self; ``asks``: a socket for the filter's questions, or -1.

    ``limits``: ``cpu`` in seconds, ``file``, ``memory`` (address space, 0: none) in bytes, ``files``, ``processes`` (0: none).
    """
    os.setsid()
    for name, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["file"]),
        (resource.RLIMIT_NOFILE, limits["files"]),
        (resource.RLIMIT_MEMLOCK, 65536),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 1024),
        (resource.RLIMIT_AS, limits["memory"] or resource.RLIM_INFINITY),
        (resource.RLIMIT_NPROC, limits["processes"] or resource.RLIM_INFINITY),
    ):
        hard = resource.getrlimit(name)[1]
        bound = value if hard == resource.RLIM_INFINITY else hard if value == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu"], limits["cpu"] + 1))
    prctl(PR_SET_DUMPABLE, 1)  # as any program is: its own /proc/self is its own
    with open(f"{rules['chroot']}/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    if rules["chroot"]:
        os.chroot(rules["chroot"])
    if rules["user"] is not None:
        os.setgroups([])
        os.setresgid(*[rules["user"]] * 3)
        os.setresuid(*[rules["user"]] * 3)
    drop_capabilities()
    prctl(PR_SET_DUMPABLE, 1)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if rules.get("paths"):
        walls.restrict(walls.ruleset(*rules["paths"], networks=False))
    elif rules["ruleset"] >= 0:
        walls.restrict(rules["ruleset"])
    if rules["filter"]:
        listener = walls.install(rules["filter"], listened=rules.get("asks", -1) >= 0)
        if listener:
            wire.send(socket.socket(fileno=rules["asks"]), {}, (listener,))


def become(rules: dict[str, Any], order: dict[str, Any], fds: list[int], trouble: int) -> None:
    """The child's whole life. ``fds``: standard input, output, error, then the program's text (Python only), then private ones.

    ``trouble``: where to say why the program could not begin; what the program itself does never reaches it.
    """
    try:
        signal.set_wakeup_fd(-1)
        os.umask(0o022)
        as_at_start(TOUCHED)
        if order["what"] == "python":  # as the interpreter does at its start
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        text = _whole(fds[3]) if order["what"] == "python" else b""
        private = fds[4:] if order["what"] == "python" else fds[3:]
        at = 3 + len(private)
        ours = [name for name in ("ruleset", "asks") if rules.get(name, -1) >= 0]
        _arrange([*fds[:3], *private, trouble, *(rules[name] for name in ours)])
        trouble = at
        confine(rules | {name: at + 1 + i for i, name in enumerate(ours)}, order["limits"])
        os.environ.clear()
        os.environ.update(LOCALE | rules.get("places", {}) | order["env"])
        os.chdir(order["cwd"])
    except BaseException as error:
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        os.write(trouble, f"{type(error).__name__}: {error} (line {where and where.tb_lineno})".encode())
        os._exit(FAILED)
    close_from(at)
    if order["what"] == "python":
        _run_python(text, order["argv"], order["cwd"])
    if order["what"] == "file":
        _transfer(order)
    try:
        os.execvpe(order["argv"][0], order["argv"], dict(os.environ))
    except OSError as error:
        os.write(2, f"{order['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _whole(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _arrange(wanted: list[int]) -> None:
    """They become 0, 1, 2, ...; everything else closes."""
    high = [os.dup2(fd, 200 + i, inheritable=True) for i, fd in enumerate(wanted)]
    for i, fd in enumerate(high):
        os.dup2(fd, i, inheritable=True)
    close_from(len(wanted))


def _run_python(text: bytes, argv: list[str], cwd: str) -> None:
    """As ``python main.py`` would, in the interpreter that is already warm. Ends the process with the program's exit code."""
    import __main__

    sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, "rb", closefd=False)), encoding="utf-8", errors="surrogateescape")
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(1, "wb", closefd=False)), encoding="utf-8", errors="surrogateescape"
    )
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "wb", closefd=False)),
        encoding="utf-8",
        errors="backslashreplace",
        line_buffering=True,
        write_through=True,
    )
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.argv = ["main.py", *argv]
    sys.path[0] = cwd  # where this package came from is nothing to the program
    for name in [name for name in sys.modules if name.partition(".")[0] == "inside"]:
        del sys.modules[name]
    sys.setrecursionlimit(1000)
    gc.unfreeze()
    code = 0
    scope = __main__.__dict__
    scope.clear()
    scope |= {"__name__": "__main__", "__builtins__": __builtins__, "__file__": "main.py"}
    try:
        exec(compile(text, "main.py", "exec"), scope)
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0 if exit_.code is None else 1
        if not isinstance(exit_.code, int | None):
            print(exit_.code, file=sys.stderr)
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != "main.py":
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        code = 1
    try:
        import atexit

        if "threading" in sys.modules:  # to load it here would take longer than many a program
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
    except BaseException:
        code = code or 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:
            code = code or 120
    os._exit(code & 0xFF)


def _transfer(order: dict[str, Any]) -> None:
    """Reads a file to standard output, or writes it from standard input, with the program's own rights; no link is followed."""
    try:
        parts = [p for p in order["path"].split("/") if p not in ("", ".")]
        if ".." in parts or not parts:
            raise OSError(22, f"a path inside the workspace is needed, without '..', not {order['path']!r}")
        where = os.open(order["cwd"], os.O_PATH | os.O_DIRECTORY)
        for part in parts[:-1]:
            if order["write"]:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=where)
            inner = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=where)
            os.close(where)
            where = inner
        flags = os.O_WRONLY | os.O_CREAT if order["write"] else os.O_RDONLY
        fd = os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_NONBLOCK, order["mode"], dir_fd=where)
        if not os.path.stat.S_ISREG(os.fstat(fd).st_mode):  # type: ignore[attr-defined]
            raise OSError(22, "not a regular file")
        if order["write"]:
            os.ftruncate(fd, 0)
        source, target = (0, fd) if order["write"] else (fd, 1)
        while part := os.read(source, 1 << 18):
            view = memoryview(part)
            while view:
                view = view[os.write(target, view) :]
    except OSError as error:
        os.write(2, f"{error.errno} {error.strerror}".encode())
        os._exit(1)
    os._exit(0)
