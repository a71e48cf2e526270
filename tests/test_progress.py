"""Progress: plain lines where nobody watches, a bar in a terminal, nothing on standard output."""

from __future__ import annotations

import io

import pytest

from posttrain.progress import Progress, clock_text


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, clock=clock)
    assert not progress.live
    progress.stage("rlvr", 4)
    for step in range(1, 5):
        clock.now += 10
        progress.update(step, reward=0.25 * step, tokens_per_second=1234.5, mixed=3)
    progress.log("done")
    assert out.getvalue().splitlines() == [
        "[rlvr] 4 steps",
        "[rlvr 1/4]  reward 0.25  1,234 tokens/s  mixed 3  0:30 left",
        "[rlvr 2/4]  reward 0.5  1,234 tokens/s  mixed 3  0:20 left",
        "[rlvr 3/4]  reward 0.75  1,234 tokens/s  mixed 3  0:10 left",
        "[rlvr 4/4]  reward 1  1,234 tokens/s  mixed 3",
        "done",
    ]


def test_plain_lines_are_few_but_the_last_one_comes() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, clock=clock)
    progress.stage("before", 1000)
    for step in range(1, 1001):
        clock.now += 0.01
        progress.update(step)
    lines = out.getvalue().splitlines()
    assert len(lines) <= 9
    assert lines[-1] == "[before 1000/1000]"


def test_a_resumed_stage_does_not_count_the_past_as_its_pace() -> None:
    clock = Clock()
    progress = Progress(io.StringIO(), clock=clock)
    progress.stage("rlvr", 100)
    clock.now += 10
    progress.update(91)
    assert progress.seconds_left() == pytest.approx(90)


def test_the_first_of_many_tells_no_pace() -> None:
    """They begin together, so the first takes as long as many: two hours left, said of eight minutes."""
    clock = Clock()
    progress = Progress(io.StringIO(), clock=clock)
    progress.stage("before", 352)
    clock.now += 24
    progress.update(1)
    assert progress.seconds_left() is None
    clock.now += 8
    progress.update(32)
    assert progress.seconds_left() == pytest.approx(320)


def test_naming_a_stage_again_corrects_its_total() -> None:
    out, clock = io.StringIO(), Clock()
    progress = Progress(out, clock=clock)
    progress.stage("rlvr", 20)
    clock.now += 10
    progress.update(1)
    progress.stage("rlvr", 5)
    assert progress.seconds_left() == pytest.approx(40)
    assert out.getvalue().count("[rlvr]") == 1


def test_live_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    with Progress(out) as progress:
        assert progress.live
        progress.stage("rlvr", 2)
        progress.update(1, reward=0.5)
        progress.log("a [bold]message[/bold] \x1b[31mred")
        progress.update(2, reward=0.75)
    shown = out.getvalue()
    assert "rlvr" in shown and "2/2" in shown and "reward 0.75" in shown
    assert "[bold]message[/bold] \N{REPLACEMENT CHARACTER}[31mred" in shown, "markup and escapes of a model's text stay text"
    assert "\x1b[32m" in shown


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    with Progress(out) as progress:
        progress.stage("rlvr", 2)
        progress.update(1)
    assert "\x1b[3" not in out.getvalue() and "\x1b[9" not in out.getvalue()


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not Progress(Terminal()).live


def test_quiet_and_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (True, False):
        progress = Progress(quiet=quiet)
        progress.stage("x", 1)
        progress.update(1)
        progress.log("hello")
        said = capsys.readouterr()
        assert said.out == ""
        assert (said.err == "") == quiet


def test_clock_text() -> None:
    assert [clock_text(s) for s in (0, 59.6, 135, 3700)] == ["0:00", "1:00", "2:15", "1:01:40"]
