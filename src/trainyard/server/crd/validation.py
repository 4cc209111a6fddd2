"""Validation of CustomResourceDefinitions beyond types: names, versions, schemas, columns, scale paths.

When all versions have the same value, kube-apiserver reports its problems at the top-level field (spec.validation,
spec.subresources), and so does this file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from trainyard.objects import Json, Problem, decode, encode
from trainyard.schema import Schema
from trainyard.schema.checks import json_text
from trainyard.schema.structural import VALIDATIONS, structure_problems
from trainyard.server.crd.trusted_schemas import is_trusted
from trainyard.server.registry.jsonpath import compile_path

log = logging.getLogger("trainyard.server")

COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
LONGEST_WARNING = 256
APPROVAL = "api-approved.kubernetes.io"
PROTECTED = (".k8s.io", ".kubernetes.io")
_KEY_OF_RULES = f'"{VALIDATIONS}":'.encode()


def check(new: Json, old: Json | None) -> list[Problem]:
    """Every problem of a CRD whose field types are right."""
    return [*_name_problems(new), *_versions(new["spec"]), *_fixed(new, old)]


def warnings(new: Json, old: Json | None) -> Iterator[str]:
    """A Warning when a CRD has validation rules (CEL), which this server does not evaluate. None for a trusted CRD: its
    kind has Python checks in place of the rules."""
    schemas = [encode(_schema_of(version)) for version in new["spec"]["versions"]]
    if any(_KEY_OF_RULES in schema and not is_trusted(schema) for schema in schemas):
        text = f"{new['metadata']['name']}: its rules ({VALIDATIONS}) are not checked here"
        log.warning("%s", text)
        yield text


def _schema_of(version: Json) -> Json | None:
    return (version.get("schema") or {}).get("openAPIV3Schema")


def _name_problems(new: Json) -> Iterator[Problem]:
    spec, meta = new["spec"], new["metadata"]
    if meta.get("name") != (expected := f"{spec['names']['plural']}.{spec['group']}"):
        text = f'must be spec.names.plural+"."+spec.group, that is {expected}'
        yield Problem("metadata.name", f"Invalid value: {json_text(meta.get('name'))}: {text}")
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
        yield Problem("spec.names.listKind", f"Invalid value: {json_text(spec['names']['kind'])}: {text}")
    conversion = spec["conversion"] if isinstance(spec["conversion"], dict) else {}
    if not (strategy := conversion.get("strategy")):
        yield Problem("spec.conversion.strategy", "Required value")
    elif strategy == "None" and (conversion.get("webhook") or {}).get("conversionReviewVersions"):
        text = "Forbidden: should not be set when strategy is not set to Webhook"
        yield Problem("spec.conversion.conversionReviewVersions", text)
    elif strategy != "None":
        text = 'Unsupported value: {}: supported values: "None": webhooks are not called here'
        yield Problem("spec.conversion.strategy", text.format(json_text(strategy)))


def _versions(spec: Json) -> Iterator[Problem]:
    versions = spec["versions"]
    names = [version["name"] for version in versions]
    if len(set(names)) != len(names):
        yield Problem("spec.versions", f"Invalid value: {json_text(names)}: must contain unique version names")
    if sum(version["storage"] is True for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield Problem("spec.versions", f"Invalid value: {json_text(names)}: {text}")
        return
    for index, version in enumerate(versions):
        yield from _deprecation_problems(version, f"spec.versions[{index}].deprecationWarning")
    for field, path, problems_of in (
        ("schema", "spec.validation", _schema_problems),
        ("subresources", "spec.subresources", _subresources),
        ("additionalPrinterColumns", "spec.additionalPrinterColumns", _columns),
        ("selectableFields", "spec.selectableFields", _selectable_field_problems),
    ):
        if all(version.get(field) == versions[0].get(field) for version in versions):
            yield from problems_of(versions[0], path, "spec.versions[0].schema" if field == "schema" else "")
        else:
            for index, version in enumerate(versions):
                yield from problems_of(version, f"spec.versions[{index}].{field}", "")


def _deprecation_problems(version: Json, path: str) -> Iterator[Problem]:
    """The problems of a version's deprecationWarning."""
    if (warning := version.get("deprecationWarning")) is None:
        return
    if not version.get("deprecated"):
        yield Problem(path, f"Invalid value: {json_text(warning)}: can only be set for deprecated versions")
    if len(warning) > LONGEST_WARNING:
        text = f"must be <= {LONGEST_WARNING} characters long"
        yield Problem(path, f"Invalid value: {json_text(warning)}: {text}")
    if not warning.isprintable():
        yield Problem(path, f"Invalid value: {json_text(warning)}: must only contain printable characters")


def _schema_problems(version: Json, path: str, required_path: str) -> Iterator[Problem]:
    schema = _schema_of(version)
    if schema is None:
        yield Problem(f"{required_path or path}.openAPIV3Schema", "Required value: schemas are required")
        return
    encoded = encode(schema)
    if not is_trusted(encoded):
        yield from schema_problems(encoded, f"{path}.openAPIV3Schema")


@lru_cache(64)
def schema_problems(encoded: bytes, place: str) -> tuple[Problem, ...]:
    """The problems of an encoded schema. Cached: schemas with pod templates are large, and many clusters of one process
    (tests) store the same CRDs."""
    schema = decode(encoded)
    if problems := structure_problems(schema, place):
        return tuple(problems)
    try:
        Schema(schema)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        return (Problem(place, f"Invalid value: {error}"),)
    return ()


def _subresources(version: Json, path: str, _: str) -> Iterator[Problem]:
    paths = (version.get("subresources") or {}).get("scale")
    path = f"{path}.scale"
    if paths is None:
        return
    if not isinstance(paths, dict):
        yield Problem(path, f"Invalid value: {json_text(paths)}: must be an object")
        return
    for name, roots, required in (
        ("specReplicasPath", (".spec",), True),
        ("statusReplicasPath", (".status",), True),
        ("labelSelectorPath", (".status", ".spec"), False),
    ):
        value = paths.get(name)
        if not value and required:
            yield Problem(f"{path}.{name}", "Required value")
        elif value and not (isinstance(value, str) and value.startswith(".")):
            yield Problem(
                f"{path}.{name}", f"Invalid value: {json_text(value)}: must be a simple json path starting with ."
            )
        elif value and not value.startswith(tuple(f"{root}." for root in roots)):
            text = f"should be a json path under {' or '.join(roots)}"
            yield Problem(f"{path}.{name}", f"Invalid value: {json_text(value)}: {text}")


def _columns(version: Json, path: str, _: str) -> Iterator[Problem]:
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        column_path = f"{path}[{index}]"
        if not column["name"]:
            yield Problem(f"{column_path}.name", "Required value")
        for field, supported in (("type", COLUMN_TYPES), ("format", COLUMN_FORMATS)):
            if column.get(field) and column[field] not in supported:
                text = f"must be one of {','.join(supported)}"
                yield Problem(f"{column_path}.{field}", f"Invalid value: {json_text(column[field])}: {text}")
        yield from _path_problems(column["jsonPath"], f"{column_path}.JSONPath")


def _path_problems(json_path: Any, path: str) -> Iterator[Problem]:
    if not isinstance(json_path, str) or not json_path.startswith("."):
        yield Problem(path, f"Invalid value: {json_text(json_path)}: must be a simple json path starting with .")
        return
    try:
        compile_path(json_path)
    except ValueError as error:
        yield Problem(path, f"Invalid value: {json_text(json_path)}: {error}")


def _selectable_field_problems(version: Json, path: str, _: str) -> Iterator[Problem]:
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    for index, field in enumerate(version.get("selectableFields") or ()):
        at, json_path = f"{path}[{index}].jsonPath", field["jsonPath"]
        if problems := list(_path_problems(json_path, at)):
            yield from problems
            continue
        schema_node: Any = schema
        for step in re.findall(r"[^.]+", json_path):
            schema_node = (schema_node.get("properties") or {}).get(step) if isinstance(schema_node, dict) else None
        if not isinstance(schema_node, dict):
            yield Problem(
                at, f"Invalid value: {json_text(json_path)}: is an invalid path: does not refer to a valid field"
            )
        elif schema_node.get("type") not in ("string", "boolean", "integer"):
            text = "must point to a field of type string, boolean or integer"
            yield Problem(at, f"Invalid value: {json_text(json_path)}: {text}")


def _fixed(new: Json, old: Json | None) -> Iterator[Problem]:
    if old is None:
        return
    for field in ("scope", "group"):
        if old["spec"].get(field) != new["spec"].get(field):
            yield Problem(f"spec.{field}", f"Invalid value: {json_text(new['spec'].get(field))}: field is immutable")
    for field in ("plural", "kind"):
        before, after = old["spec"]["names"].get(field), new["spec"]["names"].get(field)
        if before != after:
            yield Problem(f"spec.names.{field}", f"Invalid value: {json_text(after)}: field is immutable")
