"""Text stays text: whatever it holds, it makes no element, no attribute and no invisible change."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.dashboard.markup import Html, el, join, text, visible


class Elements(HTMLParser):
    """Collects the tags and attributes that a parser finds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@given(st.text())
def test_any_text_makes_no_element(content: str) -> None:
    page = el("p", content, title=content)
    parser = Elements()
    parser.feed(page)
    assert [tag for tag, _ in parser.found] == ["p"] and parser.found[0][1].keys() == {"title"}
    page.encode()  # lone surrogates are written out


@pytest.mark.parametrize("hostile", ["</script><script>x()</script>", "<img src=x onerror=x()>", "\" onload='x()", "]]><svg>"])
def test_markup_is_escaped(hostile: str) -> None:
    assert "<" not in text(hostile) and '"' not in text(hostile) and "'" not in text(hostile)


def test_control_characters_are_shown() -> None:
    assert visible("\x1b[31mred\u202eabc\ud800\n\tz") == "\\x1b[31mred\\u202eabc\\ud800\n\tz"


def test_finished_html_passes_and_none_is_left_out() -> None:
    inner = el("b", "1 < 2")
    assert el("p", inner, None, " x", class_="note", id=None) == '<p class="note"><b>1 &lt; 2</b> x</p>'
    assert el("circle", cx=1, aria_hidden="true") == '<circle cx="1" aria-hidden="true"/>'
    assert isinstance(join(["a", inner]), Html) and el("br") == "<br>"
