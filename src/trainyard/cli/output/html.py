"""HTML as values: whatever is not `Html` already is escaped. Pure."""

from __future__ import annotations

from html import escape

from trainyard.objects.printable import printable


class Html(str):
    """Markup. Only `element` and `join` make it, so that no text of a program, a log or a user becomes markup."""

    __slots__ = ()


def element(tag: str, /, *content: str, **attributes: str | float) -> Html:
    """`<tag attributes>content</tag>`. An attribute's `_` is a `-`, a trailing one is left out (`class_`)."""
    pairs = (f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"' for key, value in attributes.items())
    opening = f"<{tag}{''.join(pairs)}"
    return Html(f"{opening}>{join(*content)}</{tag}>" if content else f"{opening}/>")


def join(*parts: str) -> Html:
    """The parts one after the other."""
    return Html("".join(part if isinstance(part, Html) else escape(printable(part)) for part in parts))


def _text(value: str | float) -> str:
    return printable(value) if isinstance(value, str) else f"{value:g}"
