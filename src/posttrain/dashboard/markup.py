"""HTML that is safe by construction: text is escaped unless it is already ``Html``, and only ``el`` makes ``Html``."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import Any

# Control characters and those that reorder or hide text are shown, not obeyed; newline and tab stay.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_VOID = frozenset({"meta", "br", "hr"})
_SVG_EMPTY = frozenset({"line", "rect", "circle", "path", "polyline"})


class Html(str):
    """A finished piece of HTML."""

    __slots__ = ()


def visible(text: str) -> str:
    """Text whose invisible characters are written out: escape becomes "\\x1b", a right-to-left override "\\u202e"."""
    text = text.replace("\r\n", "\n")
    return _INVISIBLE.sub(lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)


def text(value: Any) -> Html:
    """Escaped text; ``Html`` passes unchanged."""
    return value if isinstance(value, Html) else Html(html.escape(visible(str(value)), quote=True))


def el(tag: str, *children: Any, **attributes: Any) -> Html:
    """``el("td", "1 < 2", class_="num")`` -> ``<td class="num">1 &lt; 2</td>``; None attributes and children are left out.

    A trailing underscore in an attribute's name is dropped, other underscores become hyphens.
    """
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{text(value)}"' for name, value in attributes.items() if value is not None
    )
    if tag in _VOID or (tag in _SVG_EMPTY and not children):
        return Html(f"<{tag}{shown}>" if tag in _VOID else f"<{tag}{shown}/>")
    return Html(f"<{tag}{shown}>{join(children)}</{tag}>")


def join(children: Iterable[Any]) -> Html:
    """Children one after the other, escaped where they are text."""
    return Html("".join(text(c) for c in children if c is not None))
