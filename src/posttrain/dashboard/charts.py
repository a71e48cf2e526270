"""Charts as inline SVG: no script, colours from the page's style sheet, values as native tooltips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.dashboard.markup import Html, el, join

WIDTH, HEIGHT = 320, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line: (x, y) points in order of x; ``style`` is a CSS class of the page (s1, s2); ``smooth`` draws a running mean."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str = "s1"
    smooth: bool = False


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers that cover [low, high], at most ``most`` + 2 of them."""
    span = high - low or abs(high) or 1.0
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, max(last, first + 1) + 1)]


def number(value: float) -> str:
    """A figure in few characters: 0.153, 12.4, 3.1k, 2e-05."""
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 10_000:
        return f"{value / 1000:.3g}k" if size < 1e6 else f"{value:.3g}"
    return f"{value:.4g}" if size >= 1e-3 else f"{value:.2g}"


def running_mean(points: Sequence[tuple[float, float]], width: int = 5) -> list[tuple[float, float]]:
    """Mean of each point and up to ``width`` - 1 before it."""
    out = []
    for i, (x, _) in enumerate(points):
        window = [y for _, y in points[max(0, i - width + 1) : i + 1]]
        out.append((x, sum(window) / len(window)))
    return out


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    band: tuple[float | None, float | None] | None = None,
    y_range: tuple[float, float] | None = None,
    x_label: str = "step",
) -> Html | None:
    """A line chart with axes; ``band`` shades the healthy range (None: open end). None when there is nothing finite to draw."""
    drawn = [Series(name=s.name, points=_finite(s.points), style=s.style, smooth=s.smooth) for s in series]
    drawn = [s for s in drawn if s.points]
    if not drawn:
        return None
    xs, ys = [x for s in drawn for x, _ in s.points], [y for s in drawn for _, y in s.points]
    low, high = y_range or (min(0.0, *ys), max(ys))
    if band and y_range is None:  # a bound near the data is worth seeing
        high = max([high, *(b for b in band if b is not None and b <= 2 * max(high, 1e-12))])
    y_ticks, x_ticks = ticks(low, high, 4), _whole_ticks(min(xs), max(xs))
    y0, y1, x0, x1 = y_ticks[0], y_ticks[-1], min(xs), max(xs)

    def px(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((x - x0) / (x1 - x0) if x1 > x0 else 0.5)

    def py(y: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (y - y0) / (y1 - y0))

    parts = [_band(band, y0, y1, py)] if band else []
    for y in y_ticks:
        parts.append(el("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_r(py(y)), y2=_r(py(y)), class_="grid"))
        parts.append(el("text", number(y), x=LEFT - 6, y=_r(py(y) + 3.5), class_="tick end"))
    for x in x_ticks:
        parts.append(el("text", number(x), x=_r(px(x)), y=HEIGHT - BOTTOM + 15, class_="tick middle"))
    parts.append(el("text", x_label, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 4, class_="tick middle"))
    parts += [_line(s, px, py) for s in drawn]
    label = f"{title}: " + "; ".join(f"{s.name} from {number(s.points[0][1])} to {number(s.points[-1][1])}" for s in drawn)
    return el("svg", *parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, class_="chart")


def _line(series: Series, px: object, py: object) -> Html:
    assert callable(px) and callable(py)
    points = list(series.points)
    line = running_mean(points) if series.smooth else points
    path = "M" + "L".join(f"{_r(px(x))},{_r(py(y))}" for x, y in line)
    shown = points if len(points) <= 400 else points[:: len(points) // 400 + 1]
    dots = [
        el(
            "circle",
            el("title", f"{series.name}, step {number(x)}: {number(y)}"),
            cx=_r(px(x)),
            cy=_r(py(y)),
            r=2.2 if len(points) <= 80 else 1.2,
            class_=f"dot {series.style}{' faint' if series.smooth else ''}",
        )
        for x, y in shown
    ]
    return join([el("path", d=path, class_=f"line {series.style}"), *dots])


def _band(band: tuple[float | None, float | None], y0: float, y1: float, py: object) -> Html:
    assert callable(py)
    low = max(y0, band[0]) if band[0] is not None else y0
    high = min(y1, band[1]) if band[1] is not None else y1
    if high <= low:
        return Html("")
    top, bottom = py(high), py(low)
    return el("rect", x=LEFT, y=_r(top), width=WIDTH - LEFT - RIGHT, height=_r(bottom - top), class_="band")


def bar(share: float, style: str) -> Html:
    """A horizontal bar that fills ``share`` of its place, 0 to 1."""
    width = f"{100 * min(max(share, 0.0), 1.0):.2f}%"
    return el(
        "svg",
        el("rect", x=0, y=0, width="100%", height="100%", rx=3, class_="track"),
        el("rect", x=0, y=0, width=width, height="100%", rx=3, class_=f"fill {style}"),
        class_="bar",
        aria_hidden="true",
    )


def whisker(difference: float, interval: Sequence[float], scale: tuple[float, float]) -> Html:
    """A difference and its interval on ``scale``, with a line at 0."""
    low, high = scale

    def at(value: float) -> str:
        return f"{2 + 96 * (min(max(value, low), high) - low) / ((high - low) or 1):.2f}%"

    style = "won" if interval[0] > 0 else "lost" if interval[1] < 0 else "even"
    return el(
        "svg",
        el("line", x1=at(0), x2=at(0), y1="0", y2="100%", class_="zero"),
        el("line", x1=at(interval[0]), x2=at(interval[1]), y1="50%", y2="50%", class_=f"span {style}"),
        el("circle", cx=at(difference), cy="50%", r=4.5, class_=f"point {style}"),
        class_="whisker",
        role="img",
        aria_label=f"{difference:+.2f}, 95 % interval {interval[0]:+.2f} to {interval[1]:+.2f}",
    )


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]


def _whole_ticks(low: float, high: float) -> list[float]:
    """Step numbers to write under the axis: whole, and inside it."""
    if high <= low:
        return [low]
    return [t for t in ticks(low, high, 5) if low <= t <= high and float(t).is_integer()] or [low, high]


def _r(value: float) -> str:
    return f"{value:.1f}"
