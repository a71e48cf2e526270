"""Charts: round ticks, points where they belong, values in reach of a reader that cannot see."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET

import pytest

from posttrain.dashboard.charts import (
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Series,
    bar,
    line_chart,
    number,
    running_mean,
    ticks,
    whisker,
)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-0.04, 0.03), (0, 0), (3, 3), (0.0101, 0.0119), (0, 4321), (-5, -2)])
def test_ticks_cover_the_range_with_few_round_numbers(low: float, high: float) -> None:
    got = ticks(low, high)
    assert got[0] <= low + 1e-9 and got[-1] >= high - 1e-9 and 2 <= len(got) <= 8
    steps = {round(b - a, 9) for a, b in itertools.pairwise(got)}
    assert len(steps) == 1
    mantissa = f"{steps.pop():e}"[:3]
    assert mantissa in ("1.0", "2.0", "2.5", "5.0")


def test_figures_are_short() -> None:
    assert [number(x) for x in (0.0, 0.15345, 12.4, 31_000, 2e-5, -0.5, 2.5e6)] == [
        "0", "0.1535", "12.4", "31k", "2e-05", "-0.5", "2.5e+06",
    ]  # fmt: skip


def test_running_mean_looks_back_only() -> None:
    assert running_mean([(0, 0.0), (1, 2.0), (2, 4.0)], width=2) == [(0, 0.0), (1, 1.0), (2, 3.0)]


def test_points_lie_where_their_values_are() -> None:
    svg = line_chart([Series(name="x", points=[(0, 0.0), (10, 1.0), (20, 0.5)])], title="x", y_range=(0, 1))
    assert svg is not None
    dots = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in ET.fromstring(svg).iter("circle")]
    xs, ys = [x for x, _ in dots], [y for _, y in dots]
    assert xs == [LEFT, (LEFT + WIDTH - RIGHT) / 2, WIDTH - RIGHT]
    assert ys[1] == TOP and ys[0] > ys[2] > ys[1] and ys[2] == pytest.approx((ys[0] + ys[1]) / 2, abs=0.1)
    assert ys[0] < HEIGHT


def test_nothing_finite_gives_no_chart_and_nan_is_left_out() -> None:
    nan = float("nan")
    assert line_chart([Series(name="x", points=[(0, nan)])], title="x") is None
    assert line_chart([], title="x") is None
    svg = line_chart([Series(name="x", points=[(0, 1.0), (1, nan), (2, float("inf")), (3, 2.0)])], title="x")
    assert svg is not None and len(list(ET.fromstring(svg).iter("circle"))) == 2
    assert "nan" not in svg and "inf" not in svg


def test_a_single_point_and_a_flat_line_can_be_drawn() -> None:
    for points in ([(0, 0.0)], [(5, 3.0)], [(0, 2.0), (1, 2.0)]):
        svg = line_chart([Series(name="x", points=points)], title="x", band=(0.0, 0.0))
        assert svg is not None and "nan" not in svg
        ET.fromstring(svg)


def test_the_healthy_band_is_clipped_to_the_axes() -> None:
    def band(low: float | None, high: float | None) -> tuple[float, float]:
        svg = line_chart([Series(name="x", points=[(0, 0.0), (1, 1.0)])], title="x", band=(low, high), y_range=(0, 1))
        rect = next(r for r in ET.fromstring(svg or "").iter("rect"))
        return float(rect.get("y", 0)), float(rect.get("height", 0))

    whole = band(None, None)
    assert band(0.0, 9.0) == whole
    assert band(None, 0.5)[1] == pytest.approx(whole[1] / 2, abs=0.2)
    assert band(0.5, None)[0] == whole[0] and band(None, 0.5)[0] > whole[0]


def test_a_name_is_escaped_and_its_figures_are_read_out() -> None:
    svg = line_chart([Series(name="<b>", points=[(0, 0.25), (4, 0.75)])], title='"t"')
    assert svg is not None and "<b>" not in svg
    assert ET.fromstring(svg).get("aria-label") == '"t": <b> from 0.25 to 0.75'


def test_bars_and_whiskers_stay_in_their_place() -> None:
    assert 'width="100.00%"' in bar(1.7, "s1") and 'width="0.00%"' in bar(-1, "s1")
    shown = whisker(0.2, (0.1, 0.3), (-0.1, 0.4))
    places = [float(x) for x in re.findall(r'c?x[12]?="([\d.]+)%"', shown)]
    assert all(0 <= p <= 100 for p in places) and "won" in shown
    assert "lost" in whisker(-0.2, (-0.3, -0.1), (-0.4, 0.1)) and "even" in whisker(0.0, (-0.1, 0.1), (-1, 1))
    ET.fromstring(whisker(0.0, (0.0, 0.0), (0.0, 0.0)))
