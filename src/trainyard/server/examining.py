"""What is wrong with a definition beyond its types: names, versions, schemas, rules, columns, paths of /scale.

Where all versions say the same, the real server speaks of it at the definition's top (spec.validation,
spec.subresources), and so does this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trainyard.objects import Json, Problem, decode, encode
from trainyard.schema import Schema
from trainyard.schema.checks import shown
from trainyard.schema.structural import structure_problems
from trainyard.server import cel
from trainyard.server.jsonpath import compile_path
from trainyard.server.rules import rule_problems

COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
LONGEST_WARNING = 256
APPROVAL = "api-approved.kubernetes.io"
PROTECTED = (".k8s.io", ".kubernetes.io")
_vouched: set[bytes] = set()


def check(new: Json, old: Json | None) -> list[Problem]:
    """Every problem of a definition whose types are right."""
    return [*_names(new), *_versions(new["spec"]), *_fixed(new, old)]


def _names(new: Json) -> Iterator[Problem]:
    spec, meta = new["spec"], new["metadata"]
    if meta.get("name") != (expected := f"{spec['names']['plural']}.{spec['group']}"):
        text = f'must be spec.names.plural+"."+spec.group, that is {expected}'
        yield Problem("metadata.name", f"Invalid value: {shown(meta.get('name'))}: {text}")
    if spec["group"].endswith(PROTECTED) and not (meta.get("annotations") or {}).get(APPROVAL):
        text = f'Required value: protected groups must have approval annotation "{APPROVAL}"'
        yield Problem(f"metadata.annotations[{APPROVAL}]", text)
    if spec.get("preserveUnknownFields") is True:
        text = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        yield Problem("spec.preserveUnknownFields", f"Invalid value: true: {text}")
    if not spec["scope"]:
        yield Problem("spec.scope", "Required value")
    if spec["names"].get("listKind") == spec["names"]["kind"]:
        text = "kind and listKind may not be the same"
        yield Problem("spec.names.listKind", f"Invalid value: {shown(spec['names']['kind'])}: {text}")
    conversion = spec["conversion"] if isinstance(spec["conversion"], dict) else {}
    if not (strategy := conversion.get("strategy")):
        yield Problem("spec.conversion.strategy", "Required value")
    elif strategy == "None" and (conversion.get("webhook") or {}).get("conversionReviewVersions"):
        text = "Forbidden: should not be set when strategy is not set to Webhook"
        yield Problem("spec.conversion.conversionReviewVersions", text)
    elif strategy != "None":
        text = 'Unsupported value: {}: supported values: "None": webhooks are not called here'
        yield Problem("spec.conversion.strategy", text.format(shown(strategy)))


def _versions(spec: Json) -> Iterator[Problem]:
    versions = spec["versions"]
    names = [version["name"] for version in versions]
    if len(set(names)) != len(names):
        yield Problem("spec.versions", f"Invalid value: {shown(names)}: must contain unique version names")
    if sum(version["storage"] is True for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield Problem("spec.versions", f"Invalid value: {shown(names)}: {text}")
        return
    for index, version in enumerate(versions):
        yield from _farewell(version, f"spec.versions[{index}].deprecationWarning")
    for word, place, look in (
        ("schema", "spec.validation", _schema),
        ("subresources", "spec.subresources", _subresources),
        ("additionalPrinterColumns", "spec.additionalPrinterColumns", _columns),
        ("selectableFields", "spec.selectableFields", _selectable),
    ):
        if all(version.get(word) == versions[0].get(word) for version in versions):
            yield from look(versions[0], place, "spec.versions[0].schema" if word == "schema" else "")
        else:
            for index, version in enumerate(versions):
                yield from look(version, f"spec.versions[{index}].{word}", "")


def _farewell(version: Json, place: str) -> Iterator[Problem]:
    """What is said to clients of a version that will go."""
    if (warning := version.get("deprecationWarning")) is None:
        return
    if not version.get("deprecated"):
        yield Problem(place, f"Invalid value: {shown(warning)}: can only be set for deprecated versions")
    if len(warning) > LONGEST_WARNING:
        text = f"must be <= {LONGEST_WARNING} characters long"
        yield Problem(place, f"Invalid value: {shown(warning)}: {text}")
    if not warning.isprintable():
        yield Problem(place, f"Invalid value: {shown(warning)}: must only contain printable characters")


def _schema(version: Json, place: str, missing: str) -> Iterator[Problem]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield Problem(f"{missing or place}.openAPIV3Schema", "Required value: schemas are required")
        return
    encoded = encode(schema)
    if encoded not in _vouched:
        yield from remembered(encoded, f"{place}.openAPIV3Schema", cel.present())


def vouch(definition: Json) -> None:
    """Say of a definition that its schemas are right, so that nobody looks. Somebody has: a test, a release."""
    _vouched.update(encode(version["schema"]["openAPIV3Schema"]) for version in definition["spec"]["versions"])


@lru_cache(64)
def remembered(encoded: bytes, place: str, engine: bool) -> tuple[Problem, ...]:
    """What is wrong with a schema. Those with pods in them are large, and many clusters of a process get the same."""
    schema = decode(encoded)
    if found := structure_problems(schema, place):
        return tuple(found)
    try:
        Schema(schema)
        return tuple(rule_problems(schema, place))
    except cel.Missing:
        return ()  # said with the definition
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        return (Problem(place, f"Invalid value: {error}"),)


def _subresources(version: Json, place: str, _: str) -> Iterator[Problem]:
    paths = (version.get("subresources") or {}).get("scale")
    place = f"{place}.scale"
    if paths is None:
        return
    if not isinstance(paths, dict):
        yield Problem(place, f"Invalid value: {shown(paths)}: must be an object")
        return
    for name, start, needed in (
        ("specReplicasPath", (".spec",), True),
        ("statusReplicasPath", (".status",), True),
        ("labelSelectorPath", (".status", ".spec"), False),
    ):
        given = paths.get(name)
        if not given and needed:
            yield Problem(f"{place}.{name}", "Required value")
        elif given and not (isinstance(given, str) and given.startswith(".")):
            yield Problem(
                f"{place}.{name}", f"Invalid value: {shown(given)}: must be a simple json path starting with ."
            )
        elif given and not given.startswith(tuple(f"{one}." for one in start)):
            text = f"should be a json path under {' or '.join(start)}"
            yield Problem(f"{place}.{name}", f"Invalid value: {shown(given)}: {text}")


def _columns(version: Json, place: str, _: str) -> Iterator[Problem]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        at = f"{place}[{index}]"
        if not column["name"]:
            yield Problem(f"{at}.name", "Required value")
        for word, known in (("type", COLUMN_TYPES), ("format", COLUMN_FORMATS)):
            if column.get(word) and column[word] not in known:
                text = f"must be one of {','.join(known)}"
                yield Problem(f"{at}.{word}", f"Invalid value: {shown(column[word])}: {text}")
        yield from _path(column["jsonPath"], f"{at}.JSONPath")


def _path(path: Any, place: str) -> Iterator[Problem]:
    if not isinstance(path, str) or not path.startswith("."):
        yield Problem(place, f"Invalid value: {shown(path)}: must be a simple json path starting with .")
        return
    try:
        compile_path(path)
    except ValueError as error:
        yield Problem(place, f"Invalid value: {shown(path)}: {error}")


def _selectable(version: Json, place: str, _: str) -> Iterator[Problem]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    for index, one in enumerate(version.get("selectableFields") or ()):
        at, path = f"{place}[{index}].jsonPath", one["jsonPath"]
        if found := list(_path(path, at)):
            yield from found
            continue
        leaf: Any = schema
        for step in re.findall(r"[^.]+", path):
            leaf = (leaf.get("properties") or {}).get(step) if isinstance(leaf, dict) else None
        if not isinstance(leaf, dict):
            yield Problem(at, f"Invalid value: {shown(path)}: is an invalid path: does not refer to a valid field")
        elif leaf.get("type") not in ("string", "boolean", "integer"):
            text = "must point to a field of type string, boolean or integer"
            yield Problem(at, f"Invalid value: {shown(path)}: {text}")


def _fixed(new: Json, old: Json | None) -> Iterator[Problem]:
    if old is None:
        return
    for word in ("scope", "group"):
        if old["spec"].get(word) != new["spec"].get(word):
            yield Problem(f"spec.{word}", f"Invalid value: {shown(new['spec'].get(word))}: field is immutable")
    for word in ("plural", "kind"):
        before, after = old["spec"]["names"].get(word), new["spec"]["names"].get(word)
        if before != after:
            yield Problem(f"spec.names.{word}", f"Invalid value: {shown(after)}: field is immutable")
