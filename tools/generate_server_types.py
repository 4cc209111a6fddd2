"""Writes api_types/types.txt, the types of the built-in resources, from the OpenAPI documents of a real API server.

    python -m tools.generate_server_types          starts the pinned control plane and asks it

Rules:
- Facts only: fields, types, what is required, merge keys, lists that are maps or sets, enums, defaults. Descriptions
  are sentences of others, so they stay where they are.
- Only what can be reached from a resource that the embedded server has.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.support.control_plane import ControlPlane
from tests.support.control_plane_flags import Options
from tests.support.gang_gates import GATES
from trainyard.api_types import schemas as types
from trainyard.objects import Json
from trainyard.server.builtin import BUILT_IN

PLACE = Path(types.__file__).with_name("types.txt")
HEAD = """\
# The types of built-in resources, as Kubernetes {version} has them.
# Written by `python -m tools.generate_server_types`.
# A type: its name, `@atomic` where it is one value to server-side apply, then `field:type`, with `!` where required.
# [T] is a list of T, {{T}} a map of T, *T anything that has that name. A type without a dot is of the same package.
# After `;`: p patch strategy, k merge key, l kind of list, m keys of the list, t kind of map, e enum, d default.
"""
_PREFIX = "io.k8s."


def written(ask: Callable[[str], Json], version: str) -> str:
    """The file as it should be; `ask` answers a path."""
    schemas: dict[str, Json] = {}
    for group_version in sorted({resource.api_version for resource in BUILT_IN}):
        place = f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"
        schemas |= ask(f"/openapi/v3/{place}")["components"]["schemas"]
    due = [_PREFIX + types.name_of(gvk.group, gvk.version, gvk.kind) for gvk in BUILT_IN]
    lines: dict[str, str] = {}
    while due:
        name = due.pop()
        if name in lines or "properties" not in schemas[name]:
            continue
        fields = [_field(name, field, part, schemas) for field, part in schemas[name]["properties"].items()]
        lines[name] = " ".join([_title(name, schemas[name]), *fields])
        due += [reference for part in schemas[name]["properties"].values() for reference in _named(part)]
    wrap = textwrap.TextWrapper(118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return HEAD.format(version=version) + "\n".join(wrap.fill(lines[name]) for name in sorted(lines)) + "\n"


def _title(name: str, schema: Json) -> str:
    kind = schema.get("x-kubernetes-map-type")
    return name.removeprefix(_PREFIX) + (f"@{kind}" if kind else "")


def _field(owner: str, field: str, part: Json, schemas: Mapping[str, Json]) -> str:
    must = "!" if field in (schemas[owner].get("required") or ()) else ""
    return ";".join([f"{field}{must}:{_type(owner, part, schemas)}", *_facts(part)])


def _facts(part: Json) -> Iterator[str]:
    for letter, word in (("p", "patch-strategy"), ("k", "patch-merge-key"), ("l", "list-type"), ("t", "map-type")):
        if value := part.get(f"x-kubernetes-{word}"):
            yield f"{letter}={value}"
    if keys := part.get("x-kubernetes-list-map-keys"):
        yield f"m={','.join(keys)}"
    if values := part.get("enum"):
        yield f"e={','.join(values)}"
    if part.get("default") not in (None, {}, "", 0):
        yield f"d={json.dumps(part['default'], separators=(',', ':'))}"


def _type(owner: str, part: Json, schemas: Mapping[str, Json]) -> str:
    if "items" in part:
        return f"[{_type(owner, part['items'], schemas)}]"
    if "additionalProperties" in part and isinstance(part["additionalProperties"], dict):
        return f"{{{_type(owner, part['additionalProperties'], schemas)}}}"
    for name in _named(part):
        package, _, short = name.rpartition(".")
        if short == "MicroTime":
            return "micro-time"  # to the document it is a date-time as any other
        written = short if owner.rpartition(".")[0] == package else name.removeprefix(_PREFIX)
        if "properties" in schemas[name]:
            return written
        resolved = _type(owner, schemas[name], schemas)
        return f"*{written}" if resolved == "any" else resolved
    if "oneOf" in part:
        return "int-or-string" if part.get("format") == "int-or-string" else "quantity"
    if part.get("format"):
        return str(part["format"])
    kind = str(part.get("type", "object"))
    return "any" if kind == "object" else kind


def _named(part: Json) -> list[str]:
    """The types that a field's schema refers to."""
    if "$ref" in part:
        return [part["$ref"].rpartition("/")[2]]
    below = [*(part.get("allOf") or ()), *(part[word] for word in ("items", "additionalProperties") if word in part)]
    return [name for schema in below if isinstance(schema, dict) for name in _named(schema)]


def main() -> None:
    with ControlPlane(Options(more=GATES)) as plane:
        _, version = plane.ask("GET", "/version")
        text = written(lambda path: dict(plane.ask("GET", path)[1]), version["gitVersion"].removeprefix("v"))
    PLACE.write_text(text)


if __name__ == "__main__":
    main()
