"""A struct has everything that a CRD's schema needs."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType

from trainyard.schema import from_struct


class Colour(enum.Enum):
    RED = "Red"


class Port(msgspec.Struct, rename="camel"):
    """A port."""

    container_port: Annotated[int, Meta(ge=1, le=65535)]
    name: str | None = None


class Everything(msgspec.Struct, rename="camel"):
    port_list: Annotated[list[Port], Meta(min_length=1, max_length=3)]
    count: Annotated[int, Meta(ge=0, description="How many.")] = 1
    ratio: Annotated[float, Meta(gt=0)] | None = None
    mode: Literal["Never", "Always"] = "Always"
    colour: Colour = Colour.RED
    limit: int | str = "50%"
    labels: dict[str, str] = {}
    template: Annotated[dict[str, Any] | None, Meta(extra_json_schema={"nullable": True})] = None
    absent: str | UnsetType = UNSET
    name: Annotated[str, Meta(pattern="^[a-z]+$", max_length=10)] | None = None
    anything: Any = None
    rules: Annotated[
        Port | None, Meta(extra_json_schema={"x-kubernetes-validations": [{"rule": "self.x > 1", "message": "no"}]})
    ] = None


def test_a_struct_becomes_a_structural_schema() -> None:
    port = {
        "type": "object",
        "description": "A port.",
        "properties": {
            "containerPort": {"type": "integer", "minimum": 1, "maximum": 65535},
            "name": {"type": "string"},
        },
        "required": ["containerPort"],
    }
    assert from_struct(Everything) == {
        "type": "object",
        "required": ["portList"],
        "properties": {
            "portList": {"type": "array", "items": port, "minItems": 1, "maxItems": 3},
            "count": {"type": "integer", "minimum": 0, "description": "How many.", "default": 1},
            "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
            "mode": {"type": "string", "enum": ["Always", "Never"], "default": "Always"},
            "colour": {"type": "string", "enum": ["Red"], "default": "Red"},
            "limit": {"x-kubernetes-int-or-string": True, "default": "50%"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "nullable": True},
            "absent": {"type": "string"},
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 10},
            "anything": {"x-kubernetes-preserve-unknown-fields": True},
            "rules": {**port, "x-kubernetes-validations": [{"rule": "self.x > 1", "message": "no"}]},
        },
    }


class Tree(msgspec.Struct):
    below: Tree | None = None


class Mixed(msgspec.Struct):
    count: int | list[int] = 1


def test_a_struct_that_contains_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="Tree contains itself"):
        from_struct(Tree)


def test_a_union_without_a_schema_is_refused() -> None:
    with pytest.raises(ValueError, match=r"only int \| str"):
        from_struct(Mixed)
