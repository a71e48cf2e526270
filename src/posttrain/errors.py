"""Whose fault a failure is, and the two tables that say what follows from it.

Every error that reaches a user says what was got, why it cannot be, and what to do instead. ``exit_code`` of the class is
the process's exit code (architecture, section 7).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final, Literal

EXIT_OK: Final = 0
EXIT_REGRESSION: Final = 1
EXIT_USAGE: Final = 2
EXIT_INCONCLUSIVE: Final = 3
EXIT_INVALID_RUN: Final = 4
EXIT_HOST: Final = 5
EXIT_BUG: Final = 70
EXIT_INTERRUPTED: Final = 130


class PosttrainError(Exception):
    """Base of every error that we raise on purpose; anything else that escapes is a bug of ours (exit code 70)."""

    exit_code: int = EXIT_BUG


class UsageError(PosttrainError):
    """The user's options or input cannot be used: a typo, a missing file, a bad row."""

    exit_code = EXIT_USAGE


class InvalidRun(PosttrainError):
    """A run that must not be believed: stale weights, a broken verifier, a logprob gap over its budget."""

    exit_code = EXIT_INVALID_RUN


class HostError(PosttrainError):
    """The host lacks something: disk, memory, a sandbox primitive, an optional dependency."""

    exit_code = EXIT_HOST


class InfraError(PosttrainError):
    """An engine, sandbox, verifier or worker of ours failed. Never a reward: retried, then left out, and counted."""

    exit_code = EXIT_INVALID_RUN


class DeadlineExceeded(InfraError):
    """A named wait passed its deadline."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} did not finish within {seconds:g} s")
        self.what = what
        self.seconds = seconds


class WorkerLost(InfraError):
    """A worker process died (killed, out of memory) while it held an item."""


class SandboxUnavailable(HostError):
    """This host lacks what the task's sandbox needs; the message names it, and the remedy. Never a weaker one instead."""


class SandboxLost(InfraError):
    """A sandbox of ours died or stopped answering; what it was doing is tried again in a new one."""


class LostAgain(SandboxLost):
    """As many sandboxes in a row as one piece of work may lose: not tried again, by anyone."""


class Interrupted(PosttrainError):
    """Ctrl-C: state was saved; the message holds the line that resumes."""

    exit_code = EXIT_INTERRUPTED


class ToolError(Exception):
    """A tool call failed in a way the policy may see. Codes and texts come from ``TOOL_ERRORS``, one renderer."""

    def __init__(self, code: str, detail: str = "") -> None:
        if code not in TOOL_ERRORS:
            raise KeyError(f"unknown tool error code {code!r}; known: {', '.join(TOOL_ERRORS)}")
        super().__init__(render_tool_error(code, detail))
        self.code = code
        self.detail = detail


# The one table of tool errors: the same text in training, evaluation and serving.
TOOL_ERRORS: Final[dict[str, str]] = {
    "E_ARGS": "the arguments do not fit the tool",
    "E_UNKNOWN_TOOL": "there is no such tool",
    "E_STATE": "the call is not possible in the present state",
    "E_BUDGET": "the budget is used up",
    "E_TIMEOUT": "the tool did not finish in time",
    "E_FORMAT": "the tool call could not be read",
}

# How an execution ended -> what its verdict's status is. What the policy's own program does wrong is "wrong"; "infra_error" is
# a failure of ours, or a host too busy to give the program its CPU time.
EXEC_STATUS: Final[dict[str, Literal["ok", "wrong", "infra_error"]]] = {
    "ok": "ok",
    "nonzero": "wrong",
    "signal": "wrong",
    "timeout_wall": "wrong",
    "timeout_cpu": "wrong",
    "memory": "wrong",
    "pids": "wrong",
    "disk": "wrong",
    "output_limit": "wrong",
    "sandbox_lost": "infra_error",
    "infra_error": "infra_error",
    "aborted": "infra_error",
}


def render_tool_error(code: str, detail: str = "") -> str:
    """``render_tool_error("E_ARGS", "missing 'a'")`` -> "error E_ARGS: the arguments do not fit the tool: missing 'a'"."""
    return f"error {code}: {TOOL_ERRORS[code]}" + (f": {detail}" if detail else "")


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: " Did you mean 'x'?" or the list of what there is; always ends the sentence."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f" Did you mean {close[0]!r}?"
    if not names:
        return ""
    shown = ", ".join(names[:20]) + (" ..." if len(names) > 20 else "")
    return f" Known: {shown}."
