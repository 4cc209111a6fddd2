"""What many types refuse alike: other words than the known, names, addresses, paths inside a volume.

Each gives problems at the path that it is told, with the real server's first words.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Any

from trainyard.objects import Json, Problem, encode
from trainyard.schema.checks import shown
from trainyard.server.metadata import key_texts, label_problems, name_problem

MOST = 2**31 - 1  # the largest number that most fields hold
PROTOCOLS = ("SCTP", "TCP", "UDP")
NOT_NEGATIVE = "must be greater than or equal to 0"
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEY_TEXT = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
ADDRESS_TEXT = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_MOST_MODE = 0o777
_WITH_VALUES, _WITHOUT = ("In", "NotIn"), ("Exists", "DoesNotExist")


def one_of(value: Any, known: tuple[str, ...], path: str) -> Iterator[Problem]:
    """A problem unless it is one of these, or nothing."""
    if value is not None and value not in known:
        supported = ", ".join(f'"{one}"' for one in sorted(known))
        yield Problem(path, f"Unsupported value: {shown(value)}: supported values: {supported}")


def named(name: str, path: str, rule: str = "label") -> Iterator[Problem]:
    """What is wrong with a name that has to be there."""
    if not name:
        yield Problem(path, "Required value")
    elif problem := name_problem(name, rule, path):
        yield problem


def keyed(key: str, path: str) -> Iterator[Problem]:
    """What is wrong with the key of a label, of a condition, of a topology."""
    yield from (Problem(path, f"Invalid value: {shown(key)}: {text}") for text in key_texts(key))


def config_key(key: str, path: str) -> Iterator[Problem]:
    """What is wrong with a key of a ConfigMap or a Secret, which becomes the name of a file."""
    wrong = ""
    if len(key) > 253 or not _KEY.fullmatch(key):
        wrong = _KEY_TEXT
    elif key in (".", ".."):
        wrong = f"must not be '{key}'"
    elif key.startswith(".."):
        wrong = "must not start with '..'"
    if wrong:
        yield Problem(path, f"Invalid value: {shown(key)}: {wrong}")


def address(text: str, path: str) -> Iterator[Problem]:
    """What is wrong with the address of a host."""
    if re.search(r"(^|\.)0\d", text):
        yield Problem(path, f"Invalid value: {shown(text)}: must not have leading 0s")
        return
    try:
        known = ipaddress.ip_address(text) and "%" not in text  # a zone means nothing elsewhere
    except ValueError:
        known = False
    if not known:
        yield Problem(path, f"Invalid value: {shown(text)}: {ADDRESS_TEXT}")


def mode(number: int | None, path: str) -> Iterator[Problem]:
    """What is wrong with the rights of a file."""
    if number is not None and not 0 <= number <= _MOST_MODE:
        yield Problem(path, f"Invalid value: {number}: must be between 0 and 0777 (octal), both inclusive")


def inside(file: str, path: str) -> Iterator[Problem]:
    """What is wrong with a path that has to stay inside a volume."""
    if file.startswith("/"):
        yield Problem(path, f"Invalid value: {shown(file)}: must be a relative path")
    yield from no_way_up(file, path)


def no_way_up(file: str, path: str) -> Iterator[Problem]:
    if ".." in file.split("/"):
        yield Problem(path, f"Invalid value: {shown(file)}: must not contain '..'")


def selector_problems(selector: Json, path: str) -> Iterator[Problem]:
    """What is wrong with a label selector."""
    yield from label_problems(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, one in enumerate(selector.get("matchExpressions") or ()):
        yield from requirement(one, f"{path}.matchExpressions[{index}]")


def requirement(one: Json, path: str, more: tuple[str, ...] = ()) -> Iterator[Problem]:
    """What is wrong with one condition of a selector. `more`: operators that compare with exactly one number."""
    operator, values = one.get("operator") or "", one.get("values") or []
    if operator in _WITH_VALUES and not values:
        yield Problem(f"{path}.values", "Required value: must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in _WITHOUT and values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield Problem(f"{path}.values", f"Forbidden: {text}")
    elif operator in more and len(values) != 1:
        text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield Problem(f"{path}.values", f"Required value: {text}")
    elif operator not in (*_WITH_VALUES, *_WITHOUT, *more):
        yield Problem(f"{path}.operator", f"Invalid value: {shown(operator)}: not a valid selector operator")
    yield from keyed(one.get("key") or "", f"{path}.key")
    for index, value in enumerate(values):
        yield from label_problems({"key": value}, f"{path}.values[{index}]")


def too_many(items: Sequence[Any], most: int, path: str) -> Problem:
    return Problem(path, f"Too many: {len(items)}: must have at most {most} items")


def more_than(items: Sequence[Any], most: int, what: str, path: str) -> Iterator[Problem]:
    if len(items) > most:
        yield Problem(path, f"Invalid value: {encode(items).decode()}: must not have more than {most} {what}")
