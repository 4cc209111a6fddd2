"""Objects and tables as text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import yaml

from trainyard.objects import Json

FORMS = ("wide", "json", "yaml", "name")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell; the last one is not padded."""
    if not rows:
        return []
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class _Dumper(yaml.CSafeDumper):
    """Texts of several lines as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_NO_TEXT = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[yYnN]")


def _text(dumper: yaml.CSafeDumper, text: str) -> Any:
    # Readers of YAML take numbers, such as 07502e3070, and truth values, such as y, that this writer does not know.
    style = "|" if "\n" in text else "'" if _NO_TEXT.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def document(objects: list[Json], form: str, single: bool) -> str:
    """One object, or a List, as kubectl prints them."""
    value = objects[0] if single and len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": objects}
    return as_json(value) if form == "json" else as_yaml(value)
