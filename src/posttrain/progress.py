"""What a person sees while a job runs: a live bar in a terminal, plain lines elsewhere, always on standard error.

Standard output stays free for results. ``NO_COLOR`` and dumb terminals are honoured.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PLAIN_SECONDS: Final = 2.0  # plain lines come no faster, but the last step of a stage always gets one
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a model's text must not steer the terminal


class Progress:
    """Shows one stage at a time. Close it (or use ``with``) before printing results.

    ``live=None`` looks whether ``stream`` (default: standard error) is a terminal; ``quiet=True`` shows nothing.
    """

    def __init__(
        self,
        stream: IO[str] | None = None,
        *,
        live: bool | None = None,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.live = (self.stream.isatty() and os.environ.get("TERM") != "dumb") if live is None else live
        self.quiet = quiet
        self.clock = clock
        self.name, self.total, self.step = "", 0, 0
        self.began, self.first, self.spoke = clock(), 0, -math.inf
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def stage(self, name: str, total: int) -> None:
        """Begins a stage of ``total`` steps; naming the present one again only corrects its total."""
        if name == self.name:
            self.total = total
        else:
            self.name, self.total, self.step = name, total, 0
            self.began, self.first, self.spoke = self.clock(), -1, -math.inf
        if self.quiet:
            return
        if self.live:
            self._show("")
        elif self.first < 0:
            self._line(f"[{name}] {total} step{'s' * (total != 1)}")

    def update(self, step: int, **figures: float | str) -> None:
        """``step`` of the stage's total are done; ``figures`` such as reward=0.4, tokens_per_second=800.0 go beside it."""
        if self.first < 0:
            self.first = max(0, step - 1)  # a resumed stage does not begin at 0
        self.step = step
        if self.quiet:
            return
        text = "  ".join(_figure(name, value) for name, value in figures.items())
        if self.live:
            self._show(text)
            return
        now = self.clock()
        if now - self.spoke < PLAIN_SECONDS and step < self.total:
            return
        self.spoke = now
        left = self.seconds_left()
        self._line(f"[{self.name} {step}/{self.total}]  {text}" + (f"  {clock_text(left)} left" if left else ""))

    def log(self, text: str) -> None:
        """One message, above the bar."""
        if self.quiet:
            return
        clean = CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
        if self._bar is not None:
            self._bar.console.print(clean, markup=False, highlight=False, soft_wrap=True)
        else:
            self._line(clean)

    def seconds_left(self) -> float | None:
        """Seconds that the rest of the stage takes at its pace so far; None before a twentieth of it tells one."""
        done = self.step - self.first
        if self.first < 0 or done <= 0 or done < (self.total - self.first) / 20 or self.step >= self.total:
            return None
        return (self.clock() - self.began) / done * (self.total - self.step)

    def close(self) -> None:
        """Ends the live display; the object can be used again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._task = None, None

    def _line(self, text: str) -> None:
        self.stream.write(text.rstrip() + "\n")
        self.stream.flush()

    def _show(self, text: str) -> None:
        left = self.seconds_left()
        figures = CONTROL.sub("", text) + (f"  {clock_text(left)} left" if left is not None else "")
        bar = self._open()
        if self._task is None or bar.tasks[-1].description != self.name:
            if self._task is not None:
                bar.remove_task(self._task)
            self._task = bar.add_task(self.name, total=self.total, figures=figures)
        bar.update(self._task, completed=self.step, total=self.total, figures=figures, refresh=True)

    def _open(self) -> Bar:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}", markup=False),
            )
            # No refresh thread: it would share two cores with the model.
            self._bar = Bar(*columns, console=Console(file=self.stream, force_terminal=True), auto_refresh=False)
            self._bar.start()
        return self._bar


def clock_text(seconds: float) -> str:
    """``clock_text(135)`` -> "2:15"; ``clock_text(3700)`` -> "1:01:40"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _figure(name: str, value: float | str) -> str:
    label = name.removesuffix("_per_second").replace("_", " ")
    if name.endswith("_per_second") and not isinstance(value, str):
        return f"{value:,.0f} {label}/s"
    if isinstance(value, str | int):
        return f"{label} {value}"
    return f"{label} {value:.3g}" if abs(value) < 1000 else f"{label} {value:,.0f}"
