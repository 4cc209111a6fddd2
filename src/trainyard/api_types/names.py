"""Names, label keys and values, annotation keys: their syntax, with the messages of kube-apiserver."""

from __future__ import annotations

import re

from trainyard.objects import Json, Problem
from trainyard.objects.patterns import lazy_pattern
from trainyard.schema.checks import json_text

_LABEL = lazy_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_DNS_1035 = lazy_pattern(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN = lazy_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_PATH_SEGMENT = re.compile(r"(?!\.{1,2}\Z)[^/%\x00-\x1f]+\Z")
_QUALIFIED_NAME = lazy_pattern(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SERVICE_TEXT = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
WORD_TEXT = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_RULES = {
    "label": (_LABEL, 63, LABEL_TEXT),
    "service": (_DNS_1035, 63, SERVICE_TEXT),
    "subdomain": (_SUBDOMAIN, 253, SUBDOMAIN_TEXT),
    "path": (_PATH_SEGMENT, 253, "may not be '.' or '..', and may not contain '/' or '%'"),
}
ANNOTATIONS_SIZE = 256 * 1024


def name_problem(name: str, rule: str, path: str = "metadata.name") -> Problem | None:
    """The problem of a name by a rule of Resource.name_rule, None when it has none."""
    pattern, longest, text = _RULES[rule]
    if len(name) > longest:
        return Problem(path, f"Invalid value: {json_text(name)}: must be no more than {longest} characters")
    if rule == "label" and "." in name:
        return Problem(path, f"Invalid value: {json_text(name)}: must not contain dots")
    if not pattern.match(name):
        return Problem(path, f"Invalid value: {json_text(name)}: {text}")
    return None


def path_texts(name: str) -> list[str]:
    """The problems of a name that must be a valid path segment."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def label_problems(labels: Json, path: str) -> list[Problem]:
    """The problems of label keys and values."""
    problems = []
    for key, value in labels.items():
        problems += [Problem(path, f"Invalid value: {json_text(key)}: {text}") for text in key_texts(key)]
        if not isinstance(value, str) or len(value) > 63 or (value and not _QUALIFIED_NAME.match(value)):
            text = "must be no more than 63 bytes" if len(str(value)) > 63 else VALUE_TEXT
            problems.append(Problem(path, f"Invalid value: {json_text(value)}: {text}"))
    return problems


def key_texts(key: str) -> list[str]:
    """Problems of a label key: of its prefix and of its name part."""
    prefix, slash, name = key.partition("/")
    if "/" in name:
        return [
            f"a valid label key {WORD_TEXT} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    name, texts = (name, []) if slash else (key, [])
    if slash and not prefix:
        texts.append("prefix part must be non-empty")
    elif slash and not (len(prefix) <= 253 and _SUBDOMAIN.match(prefix)):
        texts.append(f"prefix part {SUBDOMAIN_TEXT}")
    if not 0 < len(name) <= 63:
        texts.append(f"name part {'must be no more than 63 bytes' if name else 'must be non-empty'}")
    return texts if _QUALIFIED_NAME.match(name) else [*texts, f"name part {WORD_TEXT}"]


def annotation_problems(annotations: Json, path: str = "metadata.annotations") -> list[Problem]:
    """The problems of annotation keys, and of the total size."""
    problems = []
    size = 0
    for key, value in annotations.items():
        size += len(key) + len(value)
        texts = key_texts(key.lower())
        problems += [Problem(path, f"Invalid value: {json_text(key)}: {text}") for text in texts]
    if size > ANNOTATIONS_SIZE:
        problems.append(Problem(path, f"Too long: may not be more than {ANNOTATIONS_SIZE} bytes"))
    return problems
