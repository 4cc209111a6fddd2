"""Validation functions that many resources share: enumerations, names, addresses, paths in a volume, selectors.

Each function yields problems at the given path, with the first words of kube-apiserver's messages.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainyard.api_types.names import key_texts, label_problems, name_problem
from trainyard.objects import Json, Problem, encode
from trainyard.schema.checks import json_text

MAX_INT32 = 2**31 - 1  # the largest int32
NOT_NEGATIVE = "must be greater than or equal to 0"
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
ADDRESS_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_MAX_MODE = 0o777
_OPERATORS_WITH_VALUES, _OPERATORS_WITHOUT_VALUES = ("In", "NotIn"), ("Exists", "DoesNotExist")


def validate_enum(value: Any, known: tuple[str, ...], path: str) -> Iterator[Problem]:
    """A problem unless the value is one of `known`, or None."""
    if value is not None and value not in known:
        supported = ", ".join(f'"{word}"' for word in sorted(known))
        yield Problem(path, f"Unsupported value: {json_text(value)}: supported values: {supported}")


def validate_name(name: str, path: str, rule: str = "label") -> Iterator[Problem]:
    """Problems of a name that is not empty."""
    if name and (problem := name_problem(name, rule, path)):
        yield problem


def validate_qualified_name(key: str, path: str) -> Iterator[Problem]:
    """Problems of a qualified name: the key of a label, a condition type, a topology key."""
    yield from (Problem(path, f"Invalid value: {json_text(key)}: {text}") for text in key_texts(key))


def validate_config_key(key: str, path: str) -> Iterator[Problem]:
    """Problems of a key of a ConfigMap or a Secret, which can become a file name."""
    text = ""
    if len(key) > 253 or not _CONFIG_KEY.fullmatch(key):
        text = _CONFIG_KEY_TEXT
    elif key in (".", ".."):
        text = f"must not be '{key}'"
    elif key.startswith(".."):
        text = "must not start with '..'"
    if text:
        yield Problem(path, f"Invalid value: {json_text(key)}: {text}")


def validate_ip(text: str, path: str) -> Iterator[Problem]:
    """Problems of an IP address."""
    if re.search(r"(^|\.)0\d", text):
        yield Problem(path, f"Invalid value: {json_text(text)}: must not have leading 0s")
        return
    try:
        is_address = ipaddress.ip_address(text) and "%" not in text  # a zone is only valid on one host
    except ValueError:
        is_address = False
    if not is_address:
        yield Problem(path, f"Invalid value: {json_text(text)}: {ADDRESS_TEXT}")


def validate_file_mode(number: int | None, path: str) -> Iterator[Problem]:
    """Problems of a file mode."""
    if number is not None and not 0 <= number <= _MAX_MODE:
        yield Problem(path, f"Invalid value: {number}: must be between 0 and 0777 (octal), both inclusive")


def validate_local_path(file: str, path: str) -> Iterator[Problem]:
    """Problems of a path that must be relative and stay inside a volume."""
    if file.startswith("/"):
        yield Problem(path, f"Invalid value: {json_text(file)}: must be a relative path")
    yield from validate_no_backsteps(file, path)


def validate_no_backsteps(file: str, path: str) -> Iterator[Problem]:
    """A problem when the path of a file has the element `..`."""
    if ".." in file.split("/"):
        yield Problem(path, f"Invalid value: {json_text(file)}: must not contain '..'")


def selector_problems(selector: Json, path: str) -> Iterator[Problem]:
    """Problems of a label selector."""
    yield from label_problems(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        yield from validate_selector_requirement(expression, f"{path}.matchExpressions[{index}]")


def validate_selector_requirement(
    requirement: Json, path: str, further_operators: tuple[str, ...] = ()
) -> Iterator[Problem]:
    """Problems of one requirement of a selector. `further_operators`: further operators, which need exactly one
    value."""
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in _OPERATORS_WITH_VALUES and not values:
        yield Problem(f"{path}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _OPERATORS_WITHOUT_VALUES and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield Problem(f"{path}.values", f"Forbidden: {text}")
    elif operator in further_operators and len(values) != 1:
        text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield Problem(f"{path}.values", f"Required value: {text}")
    elif operator not in (*_OPERATORS_WITH_VALUES, *_OPERATORS_WITHOUT_VALUES, *further_operators):
        yield Problem(f"{path}.operator", f"Invalid value: {json_text(operator)}: not a valid selector operator")
    yield from validate_qualified_name(requirement.get("key") or "", f"{path}.key")
    for index, value in enumerate(values):
        yield from label_problems({"key": value}, f"{path}.values[{index}]")


def validate_max_items(items: Sequence[Any], max_items: int, items_name: str, path: str) -> Iterator[Problem]:
    """A problem when the list is too long, with the text that quotes the whole list."""
    if len(items) > max_items:
        text = f"must not have more than {max_items} {items_name}"
        yield Problem(path, f"Invalid value: {encode(items).decode()}: {text}")


def too_many(items: Sequence[Any], max_items: int, path: str) -> Problem:
    """The problem of a list that is too long, with the text that names its length."""
    return Problem(path, f"Too many: {len(items)}: must have at most {max_items} items")
