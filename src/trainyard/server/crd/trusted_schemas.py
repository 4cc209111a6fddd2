"""Schemas that are known to be valid: those of the kinds of Trainyard, which a test has examined.

They are neither examined nor decoded. The definitions of all kinds are 1 MB, nearly all of it the types below a
PodSpec: to decode them and to walk through them took a fourteenth of the start of a cluster.
"""

from __future__ import annotations

from typing import Any

import msgspec

from trainyard.objects import Json, decode, encode

_trusted: set[bytes] = set()


def trust_crd(definition: Json) -> None:
    """Trust the schemas of a CustomResourceDefinition. The server of such a CRD must have Python checks in place of its
    rules."""
    _trusted.update(encode(version["schema"]["openAPIV3Schema"]) for version in definition["spec"]["versions"])


def is_trusted(encoded: bytes) -> bool:
    """Whether this schema, as compact JSON, is trusted."""
    return encoded in _trusted


class _Version(msgspec.Struct):
    schema: dict[str, msgspec.Raw]


class _Spec(msgspec.Struct):
    versions: list[_Version]


class _Definition(msgspec.Struct):
    spec: _Spec


_decoder = msgspec.json.Decoder(_Definition)


def decode_definition(body: bytes) -> Any:
    """The JSON of a CustomResourceDefinition as plain Python values; where all of its schemas are trusted, each is a
    msgspec.Raw with its JSON. Raises ValueError when `body` is not JSON."""
    try:
        versions = _decoder.decode(body).spec.versions
        schemas = [bytes(version.schema["openAPIV3Schema"]) for version in versions]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return decode(body)
    if not all(map(is_trusted, schemas)):
        return decode(body)
    rest = body
    for schema in schemas:
        rest = rest.replace(schema, b"null", 1)
    definition = decode(rest)
    places = [version["schema"] for version in definition["spec"]["versions"]]
    if any(place["openAPIV3Schema"] is not None for place in places):
        return decode(body)  # the same JSON stands somewhere else, too
    for place, schema in zip(places, schemas, strict=True):
        place["openAPIV3Schema"] = msgspec.Raw(schema)
    return definition
