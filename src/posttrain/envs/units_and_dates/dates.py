"""Count days on the calendar."""

from __future__ import annotations

import calendar
import random
from dataclasses import dataclass
from datetime import date, timedelta

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said, text_decoys, worked
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.exact import Exact

WORDINGS = (
    "Today is {start}. What date is it {moves}? End with: Answer: {form}",
    "It is {start}. Give the date {moves}. End with: Answer: {form}",
    "Start on {start}. Which day is it {moves}? End with: Answer: {form}",
    "{start} is today. Name the day {moves}. End with: Answer: {form}",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"
)  # fmt: skip
MOVES = (1, 1, 1, 2, 3, 4, 5, 6, 8, 10)
MOST = (4, 14, 40, 40, 40, 60, 60, 90, 90, 120)


@dataclass(frozen=True)
class DateOffset(Family):
    """Weekday and date some days on; across months and leap years from level 2, with up to ten moves to and fro."""

    @property
    def verifier(self) -> Verifier:
        return Exact()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        now = start = first_day(rng, MOST[level] if level < 2 else 0)
        with_year = level >= 2
        moves, steps = list[str](), list[str]()
        for at in range(MOVES[level]):
            n = rng.randint(2, MOST[level])
            back = level >= 3 and rng.random() < 0.4
            after = now + timedelta(days=-n if back else n)
            moves.append(f"{n} days {'before' if back else 'after'} {'today' if at == 0 else 'that'}")
            steps += counted(now, after, with_year)
            now = after
        answer = named(now, with_year)
        template, wording = pick(rng, WORDINGS)
        form = "<weekday> <day> <month>" + (" <year>" if with_year else "")
        prompt = wording.format(start=named(start, with_year), moves=", and then ".join(moves), form=form)
        slips = [now + timedelta(days=d) for d in (1, -1, 7)]
        wrong = [named(d, with_year) for d in slips] + [answer.replace(DAYS[now.weekday()], DAYS[(now.weekday() + 1) % 7])]
        size = float(MOVES[level] * (1 + with_year))
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=prompt,
            answer=answer,
            oracle=worked(steps, answer),
            size=size,
            private={"wrong": wrong},
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        return text_decoys(task, task.private["wrong"])

    def size(self, task: Task) -> float:
        """Moves, twice over where they may leave the month."""
        return float(task.metadata["size"])


def first_day(rng: random.Random, room: int) -> date:
    """A day of 2001-2040 that is at least ``room`` days before its month's end."""
    year, month = rng.randint(2001, 2040), rng.randint(1, 12)
    return date(year, month, rng.randint(1, calendar.monthrange(year, month)[1] - room))


def named(day: date, with_year: bool) -> str:
    """``Sunday 9 March`` or ``Sunday 9 March 2025``."""
    return f"{DAYS[day.weekday()]} {day.day} {MONTHS[day.month - 1]}" + (f" {day.year}" if with_year else "")


def counted(now: date, after: date, with_year: bool) -> list[str]:
    """Worked lines of one move: day by day; in later levels the months crossed and the weekday left over whole weeks."""
    n = (after - now).days
    if not with_year:
        return [", ".join(named(now + timedelta(days=i), False).rsplit(" ", 1)[0] for i in range(1, n + 1))]
    lines, day, at = [f"{now.day} {'+' if n > 0 else '-'} {abs(n)} = {now.day + n}"], now.day + n, now
    while day > (length := calendar.monthrange(at.year, at.month)[1]):
        lines.append(f"{day} - {length} = {day - length}")
        day, at = day - length, (at.replace(day=28) + timedelta(days=4)).replace(day=1)
    while day < 1:
        at = at.replace(day=1) - timedelta(days=1)
        lines.append(f"{day} + {at.day} = {day + at.day}")
        day += at.day
    if left := abs(n) % 7:
        step = 1 if n > 0 else -1
        lines.append(", ".join(DAYS[(now.weekday() + step * i) % 7] for i in range(1, left + 1)))
    return [*lines, named(after, with_year)]
