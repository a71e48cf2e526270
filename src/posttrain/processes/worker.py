"""The worker's side: reads calls, answers in JSON, dies with its parent. Imports nothing that a target does not need."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from posttrain.errors import UsageError, nearest
from posttrain.processes.pool import HEADER, STARVED, STARVED_SECONDS


def serve(setup: Mapping[str, Any]) -> None:
    """The worker's loop: reads pickled (target, deadline, arguments) from standard input until it closes, answers in JSON."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)  # what a target prints is not a reply
    _die_with_parent(setup["lifeline"])
    _bound(setup["memory"])
    functions: dict[str, tuple[Any, Callable[..., Any]]] = {}
    for target in setup["warm"]:
        with contextlib.suppress(Exception):  # reported when it is asked for
            _function(target, functions)
    _write(replies, {"hello": os.getpid()})
    while header := requests.read(HEADER.size):
        target, deadline, args = pickle.loads(requests.read(HEADER.unpack(header)[0]))
        try:
            function = _function(target, functions)
        except BaseException as exc:
            _write(replies, {"absent": _why_absent(target, exc)})
            continue
        _write(replies, {"begun": target})
        signal.alarm(
            int(max(STARVED * deadline, STARVED_SECONDS)) + 60
        )  # the last resort against an orphan, whatever holds the interpreter
        try:
            result = function(*args)
            reply = json.dumps({"result": result}, default=_plain)
        except BaseException as exc:
            trace = "".join(traceback.format_exception(exc, limit=20))[-20_000:]
            reply = json.dumps({"raised": [type(exc).__name__, str(exc)[:2000], trace]})
        signal.alarm(0)
        _write_text(replies, reply)


def _write(replies: IO[bytes], message: Mapping[str, Any]) -> None:
    _write_text(replies, json.dumps(message))


def _write_text(replies: IO[bytes], text: str) -> None:
    body = text.encode()
    replies.write(HEADER.pack(len(body)) + body)
    replies.flush()


def _plain(value: Any) -> Any:
    """numpy and torch scalars as Python numbers; anything else is not JSON."""
    if callable(getattr(value, "item", None)) and getattr(value, "size", 1) in (1,):
        return value.item()
    raise TypeError(f"the result holds a {type(value).__name__}, which is not JSON; return numbers, text, lists or dicts")


def _function(target: str, known: dict[str, tuple[Any, Callable[..., Any]]]) -> Callable[..., Any]:
    """The function behind a target; a file is read again when it changes."""
    place, _, name = target.rpartition(":")
    by_path = place.endswith(".py")
    stamp = Path(place).stat().st_mtime_ns if by_path else None
    if target not in known or known[target][0] != stamp:
        if by_path:
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[Path(place).stem] = module
            sys.path.insert(0, str(Path(place).parent))
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        function = getattr(module, name, None)
        if not callable(function):
            have = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
            raise UsageError(f"{place} has no function {name!r}.{nearest(name, have)}")
        known[target] = stamp, function
    return known[target][1]


def _why_absent(target: str, exc: BaseException) -> str:
    if isinstance(exc, UsageError):
        return str(exc)
    place = target.rpartition(":")[0]
    frames = [f for f in traceback.extract_tb(exc.__traceback__) if f.filename == place]
    line = exc.lineno if isinstance(exc, SyntaxError) else frames[-1].lineno if frames else None
    return f"{place}{f', line {line}' if line else ''} could not be loaded: {type(exc).__name__}: {exc}"


def _die_with_parent(lifeline: int) -> None:
    """The kernel kills this process and what it started when the parent's end of ``lifeline`` closes, even in a C loop."""
    if sys.platform == "linux":
        import fcntl

        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())  # the whole group: the worker leads one of its own
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def _bound(memory: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
