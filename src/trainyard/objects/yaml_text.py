"""Writing YAML that every YAML parser, YAML 1.1 or 1.2, reads back as the same values."""

from __future__ import annotations

from typing import Any

import yaml

from trainyard.objects.yaml_scalars import is_always_text


class _Dumper(yaml.CSafeDumper):
    """Writes multi-line strings as block scalars, and no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_str(dumper: yaml.CSafeDumper, text: str) -> Any:
    # Other YAML parsers resolve plain scalars such as 07502e3070 to numbers and y to booleans; PyYAML does not.
    style = "|" if "\n" in text else None if is_always_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_str)


def as_yaml(value: Any) -> str:
    """The value as a YAML document, keys in the order of the value."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def as_flow(value: Any) -> str:
    """A scalar or a list of scalars in flow style on one line, to be written after `key: `."""
    text = str(
        yaml.dump([value], Dumper=_Dumper, default_flow_style=True, sort_keys=False, allow_unicode=True, width=1 << 20)
    )
    return text.strip()[1:-1]
