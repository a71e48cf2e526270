"""The report of a made-up run: what it says, what it leaves out, and that it is one inert file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from posttrain.dashboard.report import page, write_report
from posttrain.errors import HostError
from posttrain.evals.compare import table
from posttrain.store.run_dir import RunDir


class Document(HTMLParser):
    """Tags, attributes and text of a page; checks that elements nest."""

    VOID = frozenset({"meta", "br", "hr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def test_the_page_is_one_file_that_asks_for_nothing(finished_run: RunDir) -> None:
    document = Document(page(finished_run))
    assert not [t for t, _ in document.tags if t in ("script", "img", "link", "iframe", "object", "embed", "form", "base")]
    for tag, attributes in document.tags:
        for name, value in attributes.items():
            assert not name.startswith("on") and name not in ("src", "srcset", "style", "action"), (tag, name)
            assert "://" not in (value or "") and "url(" not in (value or ""), (tag, name, value)
            assert name != "href" or (value or "").startswith("#")
    policy = next(a["content"] for _, a in document.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'; style-src 'sha256-") and "unsafe" not in policy


def test_it_says_what_the_results_say(finished_run: RunDir) -> None:
    results, text = finished_run.results(), Document(page(finished_run)).text
    assert f"{results['before']:.2f} → {results['after_rl']:.2f}" in text
    low, high = results["interval"]
    assert f"{results['difference']:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}" in text
    assert "3-shot" in text and "after RLVR" in text and "never trained, 2 families" in text
    for name, cells in results["families"].items():
        shown = " ".join(f"{cells['pass_rate'][c]:.2f}" for c in results["columns"])
        assert f"{name}{' (never trained)' if cells['transfer'] else ''} {shown}" in text
    for kind, n in results["comparisons"][0]["flip_counts"].items():
        assert results["comparisons"][0]["names"] != ["before", "after_rl"] or f"{kind.replace('->', '→')}: {n}" in text


def test_curves_panels_and_costs_draw_what_is_there(finished_run: RunDir) -> None:
    document = Document(page(finished_run))
    charts = [a["aria-label"] or "" for t, a in document.tags if t == "svg" and a.get("class") == "chart"]
    assert sum(c.startswith(("all families", "math_computation/")) for c in charts) == 3
    assert not [c for c in charts if "writing/" in c]  # never trained
    for panel in ("Mixed groups", "Entropy", "Logprob gap, mean", "Gradient norm", "Truncated", "Malformed", "Warm-up loss"):
        assert any(c.startswith(panel) for c in charts), panel
        assert panel in document.text
    assert "Healthy: above 0.2" in document.text
    assert "rlvr 20 7.7 min 15.0 min 2.90 GB" in document.text and "11.4 minutes in all" in document.text
    assert "posttrain" in document.text and 'model = "smollm2-135m-instruct"' in document.text


def test_examples_show_both_answers_reward_parts_and_feedback(finished_run: RunDir) -> None:
    text = Document(page(finished_run)).text
    won, lost = text.index("Failed before, passes now."), text.index("Passed before, fails now.")
    assert won < lost
    example = text[won:lost]
    for shown in ("How many jars is that?", "part: format", "part: value", "reference answer", "verdict wrong", "verdict ok"):
        assert shown in example, shown
    assert "The number is not right <b>yet</b>." in example
    assert "two meetings" in text  # a tool's reply, between the answers


def test_hostile_answers_are_shown_as_text(finished_run: RunDir) -> None:
    html = page(finished_run)
    text = Document(html).text
    assert "</script><script>document.title='pwned'</script>" in text
    assert "<img src=x onerror=\"document.title='pwned'\">" in text
    assert "\\x1b[31mred" in text and "\\u202e" in text and "\\ud800" in text
    assert "996,0" in text and len(html) < 600_000  # the answer of a megabyte is cut


def test_a_run_without_results_still_has_a_page(make_run: Callable[..., RunDir], tmp_path: Path) -> None:
    text = Document(page(make_run(tmp_path / "half", finished=False, steps=2))).text
    assert "No results yet: the run is interrupted" in text or "No results yet: the run is running" in text
    assert "Learning curves" in text and "Answers, before and after" not in text


def test_a_stage_without_some_families_shows_a_dash(make_run: Callable[..., RunDir], tmp_path: Path) -> None:
    make_run(tmp_path / "gap", steps=1)
    with RunDir.open(tmp_path / "gap", write=True) as run:
        results = run.results()
        results["overall"]["pass_rate"]["few_shot"] = results["few_shot"] = None
        run.write_results(results)
        text = Document(page(run)).text
    shown = results["overall"]["pass_rate"]
    assert f"overall, 7 families {shown['before']:.2f} – {shown['after_sft']:.2f}" in text and "None" not in text


def test_where_nothing_was_compared_there_is_no_gain(make_run: Callable[..., RunDir], tmp_path: Path) -> None:
    make_run(tmp_path / "one", steps=1)
    with RunDir.open(tmp_path / "one", write=True) as run:
        whole = list(run.trajectories("before"))
        lost = [replace(t, outcome="infra_error", verdict=None, reward=None) for t in whole]
        run.write_results(table({"eval": whole}))
        assert "one evaluation, nothing to compare with" in Document(page(run)).text
        run.write_results(table({"before": lost, "after_rl": whole}))
        text = Document(page(run)).text
    assert "no task was judged in both" in text and "+0.00" not in text and "None" not in text


def test_a_run_that_just_began_has_a_page(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "new", {"seed": 0}) as run:
        text = Document(page(run)).text
    assert "No results yet" in text and "Options and versions" in text and "Learning curves" not in text


def test_findings_outside_their_range_are_told(make_run: Callable[..., RunDir], tmp_path: Path) -> None:
    make_run(tmp_path / "sick", finished=False, steps=3)
    with RunDir.open(tmp_path / "sick", write=True) as run:
        for step in range(3, 10):
            run.write_metrics("rlvr", step, {"mixed_groups": 0.02, "pass_rate": 0.9, "reward": 0.9, "entropy": 0.001})
            run.commit("rlvr", step)
        text = Document(page(run)).text
    assert "Worth a look" in text and "mixed groups: 0.02." in text and "To change:" in text


def test_the_file_goes_where_it_is_asked_for(finished_run: RunDir, tmp_path: Path) -> None:
    where = write_report(finished_run, tmp_path / "out.html")
    assert where == tmp_path / "out.html" and where.read_text(encoding="utf-8") == page(finished_run)
    assert re.match(r"<!doctype html>\n<html lang=\"en\">", where.read_text(encoding="utf-8"))
    with pytest.raises(HostError, match="cannot write"):
        write_report(finished_run, tmp_path / "no" / "such" / "folder.html")
