"""Writes kinds/pods/pod_types.py, the types below a PodTemplateSpec, from the OpenAPI document of a real API server.

    python -m tools.generate_pod_types          starts the pinned control plane and asks it

Rules:
- Types and required fields are taken. Left out are descriptions and defaults (nothing is to be written into a person's
  job), and enums and formats: a newer Kubernetes has more of them, and "" is often taken for a field left out.
- A field that the document calls required, and that the server does without all the same, is not required here.
- What is stated by ourselves elsewhere (metadata, the list of containers) or refused in a template anyway
  (ephemeralContainers) is left open.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.control_plane import ControlPlane
from trainyard.kinds.pods import pod_types
from trainyard.objects import Json

PLACE = Path(pod_types.__file__)
ROOT = "io.k8s.api.core.v1.PodSpec"
OPEN = {"metadata": "{any}", "ephemeralContainers": "[{any}]"}
NOT_REQUIRED = frozenset(
    {
        ("PodSpec", "containers"),  # has rules of ours
        ("EvictionResponder", "name"),
        ("EvictionResponder", "priority"),
        ("HTTPHeader", "value"),
        ("ISCSIVolumeSource", "lun"),
        ("PreferredSchedulingTerm", "preference"),
        ("ScaleIOVolumeSource", "secretRef"),
        ("SleepAction", "seconds"),
        ("Sysctl", "value"),
    }
)
"""A test asks the server for every other one."""

HEAD = '''\
"""The types below a PodSpec, as Kubernetes {version} has them. Written by `python -m tools.generate_pod_types`.

One type a line: its name, then `field:type` for each field, with a `!` where it is required. [T] is a list of T, {{T}}
a map of T, and `any` is of any type.
"""

KUBERNETES = "{version}"
TYPES = """
'''


def written(document: Json, version: str) -> str:
    """The module as it should be."""
    schemas: Mapping[str, Json] = document["components"]["schemas"]
    types: dict[str, str] = {}
    due = [ROOT]
    while due:
        name = due.pop()
        if _short(name) not in types:
            fields = dict(_fields(name, schemas[name]))
            types[_short(name)] = " ".join(f"{field}:{_type(part, schemas)}" for field, part in fields.items())
            due += [
                reference for part in fields.values() for reference in _named(part) if _is_object(schemas[reference])
            ]
    lines = (_line(name, types[name]) for name in sorted(types))
    return HEAD.format(version=version) + "\n".join(lines) + '\n"""\n'


def _fields(name: str, schema: Json) -> Iterator[tuple[str, Json]]:
    required = schema.get("required") or ()
    for field, part in schema["properties"].items():
        must = field in required and (_short(name), field) not in NOT_REQUIRED
        yield field + "!" * must, {"open": OPEN[field]} if field in OPEN else part


def _type(part: Json, schemas: Mapping[str, Json]) -> str:
    if "open" in part:
        return str(part["open"])
    for name in _named(part) if "items" not in part and "additionalProperties" not in part else ():
        return _short(name) if _is_object(schemas[name]) else _type(schemas[name], schemas)
    if part.get("format") == "int-or-string":
        return "int-or-string"
    if "oneOf" in part:  # a quantity: also 0.5, which no structural schema can say beside a string
        return "any"
    if part["type"] == "array":
        return f"[{_type(part['items'], schemas)}]"
    if part["type"] == "object":
        return f"{{{_type(part['additionalProperties'], schemas)}}}"
    return str(part["type"])


def _is_object(schema: Json) -> bool:
    return "properties" in schema


def _named(part: Json) -> list[str]:
    """The types that a field's schema refers to."""
    if "$ref" in part:
        return [part["$ref"].rpartition("/")[2]]
    below = [*(part.get("allOf") or ()), *(part[word] for word in ("items", "additionalProperties") if word in part)]
    return [name for schema in below for name in _named(schema)]


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _line(name: str, fields: str) -> str:
    return textwrap.fill(f"{name} {fields}", 118, subsequent_indent="    ", break_long_words=False)


def main() -> None:
    with ControlPlane() as plane:
        _, document = plane.ask("GET", "/openapi/v3/api/v1")
        _, version = plane.ask("GET", "/version")
    PLACE.write_text(written(document, version["gitVersion"].removeprefix("v")))


if __name__ == "__main__":
    main()
