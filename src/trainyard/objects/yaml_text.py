"""Values as YAML that other readers of YAML understand as they were meant."""

from __future__ import annotations

from typing import Any

import yaml

from trainyard.objects.words import is_always_text


class _Dumper(yaml.CSafeDumper):
    """Texts of several lines as blocks, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.CSafeDumper, text: str) -> Any:
    # Readers of YAML take numbers, such as 07502e3070, and truth values, such as y, that this writer does not know.
    style = "|" if "\n" in text else None if is_always_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def as_yaml(value: Any) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def as_flow(value: Any) -> str:
    """A scalar or a list of scalars on one line, to stand behind `key: `."""
    text = str(
        yaml.dump([value], Dumper=_Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=1 << 20)
    )
    return text.strip()[1:-1]
