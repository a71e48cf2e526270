"""Where errors end: one clear message on standard error, and the exit code that says whose fault it was."""

from __future__ import annotations

import errno
import os
import platform
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from posttrain.errors import EXIT_BUG, EXIT_HOST, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, PosttrainError

DISK_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
OUT_OF_MEMORY: Final = re.compile(r"can't allocate memory|out of memory|std::bad_alloc", re.IGNORECASE)


def guarded(argv: Sequence[str]) -> int:
    """Runs a command line; returns its exit code. The only ``except Exception`` of the house."""
    try:
        from posttrain.cli.app import command

        code = command()(args=list(argv), prog_name="posttrain", standalone_mode=False)
        sys.stdout.flush()
        if code == EXIT_INTERRUPTED:
            say("interrupted")
        return code if isinstance(code, int) else EXIT_OK
    except PosttrainError as exc:
        say(str(exc))
        return exc.exit_code
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit) as exc:  # the parser turns the first into the second
        if not isinstance(exc, BrokenPipeError) and not isinstance(exc.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader of our output has left, as `| head` does
        return EXIT_OK
    except Exception as exc:
        return _others(exc, argv)


def say(text: str) -> None:
    """A message for people, on standard error; control characters cannot steer the terminal."""
    from posttrain.progress import CONTROL

    clean = CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    print(f"posttrain: {clean}", file=sys.stderr, flush=True)


def _others(exc: Exception, argv: Sequence[str]) -> int:
    """What is no error of ours: the parser's complaint, a full disk, too little memory, or a bug."""
    complaint: Any = exc
    if type(exc).__name__ == "NoArgsIsHelpError":
        print(complaint.format_message(), file=sys.stderr)
        return EXIT_USAGE
    if callable(getattr(exc, "format_message", None)) and isinstance(getattr(exc, "exit_code", None), int):
        say(f"{complaint.format_message()} See 'posttrain --help'.")
        return int(complaint.exit_code)
    if type(exc).__name__ == "Abort":
        say("interrupted")
        return EXIT_INTERRUPTED
    if isinstance(exc, OSError) and exc.errno in DISK_FULL:
        say(f"the disk is full: {exc}. Free some space, then 'posttrain resume RUN'; what was reported is saved")
        return EXIT_HOST
    if isinstance(exc, MemoryError) or (isinstance(exc, RuntimeError) and OUT_OF_MEMORY.search(str(exc))):
        first = str(exc).splitlines()[0] if str(exc) else "MemoryError"
        say(f"memory ran out ({first}); try a smaller train.tokens_per_batch, or a smaller engine.max_slots")
        return EXIT_HOST
    where = write_crash(exc, argv)
    if place := _in_a_file_of_the_user(exc):
        say(f"{place}: {type(exc).__name__}: {exc}; mend the file. If it is right, please send us {where}")
        return EXIT_USAGE
    say(f"a bug of ours: {type(exc).__name__}: {exc}. Please send us the file {where}; a run under way can be resumed")
    return EXIT_BUG


def _in_a_file_of_the_user(exc: Exception) -> str:
    """The last place in a plug-in that was loaded by its path, if it came to one: not the package's bug, most likely."""
    from posttrain.plugins import FILE

    places = [
        f"{frame.f_code.co_filename}, line {line}, in {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(exc.__traceback__)
        if str(frame.f_globals.get("__name__")).startswith(FILE)
    ]
    return places[-1] if places else ""


def write_crash(exc: Exception, argv: Sequence[str]) -> Path:
    """Writes what is needed to find a bug; secrets in the command line are blanked."""
    import posttrain
    from posttrain.options import REDACTED, SECRET

    shown = [f"{k}={REDACTED}" if eq and SECRET.search(k) else f"{k}{eq}{v}" for k, eq, v in (a.partition("=") for a in argv)]
    text = "\n".join(
        [
            f"posttrain {posttrain.__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command line: {' '.join(shown)}",
            "",
            "".join(traceback.format_exception(exc)),
        ]
    )
    name = f"posttrain-crash-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        try:
            (folder / name).write_text(text, encoding="utf-8")
        except OSError:
            continue
        return folder / name
    print(text, file=sys.stderr)
    return Path("above (no folder can be written)")
