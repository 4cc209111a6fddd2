"""The definitions of our kinds are created without decoding their schemas, and are stored as any other's are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trainyard import kinds
from trainyard.objects import Json, decode, encode
from trainyard.server import trust_crd
from trainyard.server.crd.definitions import decode_new

DEFINITIONS = {definition["metadata"]["name"]: definition for definition in kinds.crds(kinds.ALL)}


def schemas_of(definition: Json) -> list[Any]:
    return [version["schema"]["openAPIV3Schema"] for version in definition["spec"]["versions"]]


@pytest.fixture(autouse=True)
def trusted() -> None:
    for definition in DEFINITIONS.values():
        trust_crd(definition)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_only_the_schemas_of_a_trusted_definition_stay_json(name: str) -> None:
    decoded = decode_new(encode(DEFINITIONS[name]))
    assert {type(schema) for schema in schemas_of(decoded)} == {msgspec.Raw}
    assert encode(decoded) == encode(DEFINITIONS[name])


@pytest.mark.parametrize("name", DEFINITIONS)
def test_one_other_schema_is_enough_for_a_definition_to_be_decoded(name: str) -> None:
    definition = decode(encode(DEFINITIONS[name]))
    schemas_of(definition)[-1]["description"] = "changed"
    assert decode_new(encode(definition)) == definition


def test_a_schema_that_stands_in_another_place_first_is_decoded() -> None:
    definition = DEFINITIONS["pytorchjobs.kubeflow.org"]
    body = encode({"elsewhere": schemas_of(definition)[0], **definition})
    assert decode_new(body) == decode(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"spec":null}',
        b'{"spec":{"versions":[]}}',
        b'{"spec":{"versions":[{"schema":{}}]}}',
        b'{"spec":{"versions":[{"schema":{"openAPIV3Schema":null}}]}}',
        b'{"spec":{"versions":[{"schema":7}]}}',
    ],
)
def test_what_is_no_definition_is_decoded_as_it_is(body: bytes) -> None:
    assert decode_new(body) == decode(body)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        decode_new(body)
