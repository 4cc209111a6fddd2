"""Answers without what differs from run to run.

A uid, a generated name or a version becomes a symbol by its first appearance, so that "the same uid as in step 2" is
compared and its digits are not. Versions keep their order: one that is lower than an earlier one says so. The version
of a list is only held against its items: other sequences write, too.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.differential.steps import Answer
from trainyard.objects import Json

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z")
_ACCESS = re.compile(r"kube-api-access-[a-z0-9]{5}")
_AGE = re.compile(r"\d+[smhdy](\d+[smhd])?\Z")
_NUMBER = re.compile(r"\b\d+\b")
HEADERS = ("Content-Type", "Retry-After", "Warning", "Cache-Control")
"""Those of an answer that a client acts on."""


class Symbols:
    """The names that the values of one run have been given."""

    def __init__(self, namespace: str) -> None:
        self._names: dict[str, str] = {namespace: "<ns>"}
        self._uids: dict[str, str] = {}
        self._versions: dict[int, str] = {}
        self._order: list[int] = []

    def text(self, text: str, learning: bool = True) -> str:
        for name, symbol in self._names.items():
            text = text.replace(name, symbol)
        text = _ACCESS.sub("kube-api-access-<any>", text)
        return _UID.sub(lambda match: self._uid(match[0], learning), text)

    def _uid(self, uid: str, learning: bool) -> str:
        if learning:
            return self._uids.setdefault(uid, f"<uid {len(self._uids) + 1}>")
        return self._uids.get(uid, "<uid>")

    def message(self, text: str) -> str:
        """A text for people may name versions and uids. What it names alone is not counted."""
        known = {str(number): symbol for number, symbol in self._versions.items()}
        return self.text(_NUMBER.sub(lambda match: known.get(match[0], match[0]), text), learning=False)

    def knows(self, number: str) -> bool:
        """Whether that is a revision of an earlier response."""
        return int(number) in self._versions

    def version(self, text: str) -> str:
        if not text.isdigit():
            return text
        number = int(text)
        if number not in self._versions:
            at = bisect.bisect(self._order, number)
            after = f" before {self._versions[self._order[at]]}" if at < len(self._order) else ""
            self._versions[number] = f"<version {len(self._versions) + 1}{after}>"
            self._order.insert(at, number)
        return self._versions[number]

    def learn(self, value: Any, generated_prefixes: Sequence[str] = ()) -> None:
        """The names that the server has made up. `generated_prefixes`: their beginnings, where the answer does not say
        so."""
        if isinstance(value, list):
            for part in value:
                self.learn(part, generated_prefixes)
        if isinstance(value, dict):
            name, prefix = value.get("name"), value.get("generateName")
            prefixes = (prefix,) if isinstance(prefix, str) and prefix else generated_prefixes
            if isinstance(name, str) and any(_made_of(prefix, name) for prefix in prefixes):
                self._names.setdefault(name, f"<name {len(self._names)}>")
            for part in value.values():
                self.learn(part, generated_prefixes)


def _made_of(prefix: str, name: str) -> bool:
    return re.fullmatch(re.escape(prefix[:58]) + "[a-z0-9]{5}", name) is not None


def normal(answers: Sequence[Answer], namespace: str, generated_prefixes: Sequence[str] = ()) -> list[Json]:
    """The answers of one run as values that can be compared with those of another. `generated_prefixes`: what
    generateName was."""
    symbols = Symbols(namespace)
    causes = []
    for answer in answers:
        symbols.learn(answer.body, generated_prefixes)
        body = _value(answer.body, "", symbols)
        headers = {name: _value(value, name, symbols) for name, value in sorted(answer.headers.items())}
        causes.append({"code": answer.code, "headers": headers, "body": body})
    return causes


def _value(value: Any, name: str, symbols: Symbols) -> Any:
    if isinstance(value, str):
        if _TIME.match(value):
            return "<time>"
        if value.isdigit() and len(value) > 1 and symbols.knows(value):
            return symbols.version(value)  # a patch may put it anywhere
        return symbols.message(value) if name == "message" else symbols.text(value)
    if isinstance(value, list):
        values = [_value(part, name, symbols) for part in value]
        return sorted(values, key=_by_field) if name == "causes" else values
    if isinstance(value, dict):
        return _object(value, name, symbols)
    return value


def _by_field(cause: Any) -> str:
    return " ".join(str(cause.get(field)) for field in ("field", "reason", "message"))


def _object(value: Mapping[str, Any], name: str, symbols: Symbols) -> Json:
    normalized: Json = {}
    for key in sorted(value):
        part = value[key]
        if key == "managedFields":
            continue
        if key == "continue" and part:
            normalized[key] = "<continue>"
        elif key == "resourceVersion" and name == "metadata":
            normalized[key] = symbols.version(str(part)) if "uid" in value else ("<list>" if part else part)
        elif key == "cells":
            normalized[key] = ["<age>" if isinstance(cell, str) and _AGE.match(cell) else cell for cell in part]
            normalized[key] = _value(normalized[key], key, symbols)
        else:
            normalized[symbols.text(key)] = _value(part, key, symbols)
    return normalized
