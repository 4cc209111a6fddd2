"""Objects and tables as text. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from trainyard.objects import Json
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.printable import DIRECTION_MARKS, SURROGATES
from trainyard.objects.yaml_text import as_yaml

if TYPE_CHECKING:
    from trainyard.views.event_view import EventView

__all__ = ["FORMS", "align_columns", "as_json", "as_yaml", "document"]

# Valid unescaped in JSON, but a terminal interprets them, or no output can encode them.
_CONTROL_CHARACTERS = lazy_pattern(f"[\x7f-\x9f{DIRECTION_MARKS}{SURROGATES}]")
FORMS = ("wide", "json", "yaml", "name")


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose columns are as wide as their widest cell; the last column is not padded."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def without_empty_columns(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> list[list[str]]:
    """The rows without those of the columns with these heads that have no value. The first row has the heads."""
    empty = {
        column for column, head in enumerate(rows[0]) if head in heads and not any(row[column] for row in rows[1:])
    }
    return [[cell for column, cell in enumerate(row) if column not in empty] for row in rows]


def as_json(value: Any) -> str:
    """Indented JSON whose control characters are escaped, so that a terminal cannot interpret them."""
    return _CONTROL_CHARACTERS.sub(
        lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, indent=2, ensure_ascii=False)
    )


def document(objects: list[Json], form: str, single: bool) -> str:
    """One object, or a List, as kubectl prints them."""
    value = objects[0] if single and len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
    return as_json(value) if form == "json" else as_yaml(value)


def event_rows(events: Iterable[EventView], now: float, wide: bool = False) -> list[list[str]]:
    """The table of the events with its head. `now`: Unix seconds; `wide`: with the source."""
    from trainyard.views.durations import format_age

    table = [["AGE", "TYPE", "REASON", "OBJECT", *(["SOURCE"] if wide else []), "MESSAGE"]]
    for event in events:
        age = "" if event.time is None else format_age(now - event.time)
        cells = [age + (f" (x{event.count})" if event.count > 1 else ""), event.type, event.reason, event.object]
        table.append([*cells, *([event.source] if wide else []), event.message])
    return table
