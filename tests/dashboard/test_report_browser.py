"""The report in a real browser with no network: no error, no request, hostile text inert, no sideways scroll on a phone.

Drives headless Chromium over its debugging pipe (zero-terminated JSON on file descriptors 3 and 4), so nothing is listened on.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posttrain.dashboard.report import write_report
from posttrain.store.run_dir import RunDir

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None, reason="no Chromium here (Debian: apt-get install chromium); the page's markup is tested without"
    ),
]


class Browser:
    """One page of a headless Chromium. ``events`` holds everything it reported."""

    def __init__(self, profile: Path) -> None:
        assert BROWSER is not None
        (there, self._in), (self._out, back) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (there, back)]  # free 3 and 4 for the child

        def place() -> None:
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        flags = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
            "--remote-debugging-pipe", "--proxy-server=127.0.0.1:9", "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        self.process = subprocess.Popen(
            [BROWSER, *flags], preexec_fn=place, pass_fds=(3, 4), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for fd in (there, back, *high):
            os.close(fd)
        self.events: list[dict[str, Any]] = []
        self._buffer, self._number, self._session = b"", 0, ""
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._next(deadline, method)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._out], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"Chromium did not answer {what} within 60 s"
            got = os.read(self._out, 1 << 16)
            assert got, f"Chromium ended during {what}"
            self._buffer += got
        first, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(first)
        return answer

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        got = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    def until(self, expression: str, seconds: float = 20.0) -> bool:
        """Whether the expression comes true: what is laid out or hidden is settled at a later frame than the one asked in."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                return False
            self.evaluate("new Promise(drawn => requestAnimationFrame(() => drawn()))")
        return True

    def open(self, path: Path, *, width: int, dark: bool = False) -> None:
        """Loads a file at a window of that width and waits for its load event."""
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + 60
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._next(deadline, "loading the page"))
        self.evaluate("new Promise(done => setTimeout(done, 300))")  # a payload that waits would act now

    def of(self, method: str) -> list[dict[str, Any]]:
        """Parameters of the events of one kind."""
        return [e["params"] for e in self.events if e.get("method") == method]

    def close(self) -> None:
        """Ends the browser."""
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        os.close(self._in)
        os.close(self._out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for the module."""
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def report(finished_run: RunDir, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report as a file."""
    return write_report(finished_run, tmp_path_factory.mktemp("report") / "report.html")


def test_no_error_no_request_and_payloads_are_inert(browser: Browser, report: Path) -> None:
    browser.open(report, width=1200)
    assert browser.of("Log.entryAdded") == [] and browser.of("Runtime.exceptionThrown") == []
    assert browser.of("Runtime.consoleAPICalled") == []
    assert [r["request"]["url"] for r in browser.of("Network.requestWillBeSent")] == [report.resolve().as_uri()]
    assert browser.evaluate("document.title") == "posttrain: demo-run"
    assert browser.evaluate("document.querySelectorAll('script, img, link, iframe').length") == 0
    shown = "[...document.querySelectorAll('pre')].map(p => p.textContent).join('\\n')"
    assert browser.evaluate(f"({shown}).includes(\"</script><script>document.title='pwned'</script>\")")
    assert browser.evaluate(f"({shown}).includes('<img src=x onerror=')")
    style = "getComputedStyle(document.body).display"
    assert browser.evaluate(style) == "block"
    assert browser.evaluate("document.querySelector('[data-testid=headline]').textContent").count("→") == 1


def test_the_policy_stops_a_script_that_slipped_in(browser: Browser, report: Path, tmp_path: Path) -> None:
    """The second wall: were escaping ever to fail, the content policy would refuse script, style and request alike."""
    broken = tmp_path / "broken.html"
    attack = "<script>document.title='pwned'</script><img src=x onerror=\"document.title='pwned'\">"
    broken.write_text(report.read_text().replace("<main>", f"<main>{attack}"))
    browser.open(broken, width=1200)
    assert browser.evaluate("document.title") == "posttrain: demo-run"
    assert browser.of("Log.entryAdded")  # and the browser says so, which shows that the check above can fail


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_no_sideways_scroll(browser: Browser, report: Path, width: int) -> None:
    browser.open(report, width=width)
    browser.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.until(f"document.documentElement.scrollWidth <= {width}")
    assert browser.until(f"innerWidth == {width}")
    sticking_out = "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    assert browser.evaluate(sticking_out) == 0


def test_light_and_dark_follow_the_reader(browser: Browser, report: Path) -> None:
    colours = []
    for dark in (False, True):
        browser.open(report, width=800, dark=dark)
        both = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        colours.append([sum(int(x) for x in c[4:-1].split(",")) for c in browser.evaluate(both)])
    (light_page, light_ink), (dark_page, dark_ink) = colours
    assert light_page > 600 > 200 > light_ink and dark_page < 200 < 600 < dark_ink


def test_charts_are_drawn_and_examples_open(browser: Browser, report: Path) -> None:
    browser.open(report, width=1200)
    sizes = browser.evaluate("[...document.querySelectorAll('svg.chart')].map(s => [s.clientWidth, s.clientHeight])")
    assert len(sizes) >= 15 and all(w > 200 and h > 100 for w, h in sizes)
    lines = browser.evaluate("[...document.querySelectorAll('path.line')].map(p => getComputedStyle(p).stroke)")
    assert lines and "none" not in lines
    shown = "document.querySelector('details pre').checkVisibility({contentVisibilityAuto: true})"
    assert browser.until(f"!{shown}")
    browser.evaluate("document.querySelector('summary').click()")
    assert browser.until(shown)
