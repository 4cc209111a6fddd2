"""RBAC as pure functions over rules: whether a request is allowed, and which grants exceed the rules of a user.

Rules for this file:
- A rule is the JSON of a PolicyRule. Malformed parts grant nothing.
- No objects, no log, no users: authorization.py determines the rules of a user.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from trainyard.objects import Json

ANY = "*"


class Attributes(NamedTuple):
    """The authorizer attributes of a request: for a resource, or, when `path` is set, for a non-resource path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def resource_path(self) -> str:
        """The resource with its subresource: pods, pods/exec."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def is_allowed(rules: Iterable[Json], attributes: Attributes) -> bool:
    """Whether one of the rules allows the request."""
    return any(_allows(rule, attributes) for rule in rules)


def _allows(rule: Json, attributes: Attributes) -> bool:
    if not _matches(_words(rule, "verbs"), attributes.verb):
        return False
    if attributes.path:
        return any(_path_matches(pattern, attributes.path) for pattern in _words(rule, "nonResourceURLs"))
    names = _words(rule, "resourceNames")
    return (
        _matches(_words(rule, "apiGroups"), attributes.group)
        and _resource_matches(_words(rule, "resources"), attributes.resource_path, attributes.subresource)
        and (not names or attributes.name in names)
    )


def _matches(words: Sequence[str], value: str) -> bool:
    return ANY in words or value in words


def _resource_matches(words: Sequence[str], resource: str, subresource: str) -> bool:
    return _matches(words, resource) or (bool(subresource) and f"{ANY}/{subresource}" in words)


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in (ANY, path) or (pattern.endswith(ANY) and path.startswith(pattern.rstrip(ANY)))


def _words(rule: Json, name: str) -> Sequence[str]:
    words = rule.get(name)
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else ()


def missing_rules(held: Sequence[Json], requested: Iterable[Json]) -> list[Json]:
    """What `requested` grants and `held` does not, as rules of one verb and one resource or URL each."""
    return [
        single
        for rule in requested
        for single in _single_rules(rule)
        if not any(_covers(held_rule, single) for held_rule in held)
    ]


def _single_rules(rule: Json) -> list[Json]:
    rules: list[Json] = []
    names = _words(rule, "resourceNames") or (None,)
    for verb in _words(rule, "verbs"):
        for group, resource, name in product(_words(rule, "apiGroups"), _words(rule, "resources"), names):
            part: Json = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
            rules.append(part if name is None else {**part, "resourceNames": [name]})
        rules += [{"verbs": [verb], "nonResourceURLs": [url]} for url in _words(rule, "nonResourceURLs")]
    return rules


def _covers(rule: Json, single: Json) -> bool:
    """Whether `rule` grants `single`, one of `_single_rules`. A wildcard in it is only covered by a wildcard."""
    if not _matches(_words(rule, "verbs"), single["verbs"][0]):
        return False
    if urls := single.get("nonResourceURLs"):
        return any(_path_matches(pattern, urls[0]) for pattern in _words(rule, "nonResourceURLs"))
    resource = single["resources"][0]
    names, single_names = _words(rule, "resourceNames"), single.get("resourceNames")
    return (
        _matches(_words(rule, "apiGroups"), single["apiGroups"][0])
        and _resource_matches(_words(rule, "resources"), resource, resource.partition("/")[2])
        and (not names or (single_names is not None and single_names[0] in names))
    )


def rule_text(rule: Json) -> str:
    """A rule as kube-apiserver writes it into a Forbidden message."""
    words = (
        ("APIGroups", "apiGroups"),
        ("Resources", "resources"),
        ("ResourceNames", "resourceNames"),
        ("NonResourceURLs", "nonResourceURLs"),
        ("Verbs", "verbs"),
    )
    parts = (f"{word}:[{', '.join(_quoted(_words(rule, name)))}]" for word, name in words if rule.get(name))
    return "{" + ", ".join(parts) + "}"


def _quoted(words: Sequence[str]) -> list[str]:
    return [f'"{word}"' for word in words]
