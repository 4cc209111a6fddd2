"""RBAC as pure functions over rules: is this allowed, and does that hold no more than this.

Rules for this file:
- A rule is the JSON of a PolicyRule. What is malformed in it grants nothing.
- No objects, no log, no users: which rules count for whom is in access.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from trainyard.objects import Json

ANY = "*"


class Asked(NamedTuple):
    """A request as an authorizer sees it: about objects, or, when `path` is set, about nothing but that path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def what(self) -> str:
        """pods, pods/exec."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def allowed(rules: Iterable[Json], asked: Asked) -> bool:
    """Whether one of the rules allows it."""
    return any(_allows(rule, asked) for rule in rules)


def _allows(rule: Json, asked: Asked) -> bool:
    if not _has(_words(rule, "verbs"), asked.verb):
        return False
    if asked.path:
        return any(_path_matches(one, asked.path) for one in _words(rule, "nonResourceURLs"))
    names = _words(rule, "resourceNames")
    return (
        _has(_words(rule, "apiGroups"), asked.group)
        and _resource_matches(_words(rule, "resources"), asked.what, asked.subresource)
        and (not names or asked.name in names)
    )


def _has(words: Sequence[str], wanted: str) -> bool:
    return ANY in words or wanted in words


def _resource_matches(words: Sequence[str], what: str, subresource: str) -> bool:
    return _has(words, what) or (bool(subresource) and f"{ANY}/{subresource}" in words)


def _path_matches(pattern: str, path: str) -> bool:
    return pattern in (ANY, path) or (pattern.endswith(ANY) and path.startswith(pattern.rstrip(ANY)))


def _words(rule: Json, name: str) -> Sequence[str]:
    words = rule.get(name)
    return [word for word in words if isinstance(word, str)] if isinstance(words, list) else ()


def beyond(held: Sequence[Json], wanted: Iterable[Json]) -> list[Json]:
    """What `wanted` grants and `held` does not, in rules of one verb and one thing each."""
    return [rule for one in wanted for rule in _parts(one) if not any(_covers(own, rule) for own in held)]


def _parts(rule: Json) -> list[Json]:
    found: list[Json] = []
    names = _words(rule, "resourceNames") or (None,)
    for verb in _words(rule, "verbs"):
        for group, resource, name in product(_words(rule, "apiGroups"), _words(rule, "resources"), names):
            part: Json = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
            found.append(part if name is None else {**part, "resourceNames": [name]})
        found += [{"verbs": [verb], "nonResourceURLs": [url]} for url in _words(rule, "nonResourceURLs")]
    return found


def _covers(own: Json, part: Json) -> bool:
    """`part` is one of `_parts`. A wildcard in it is only covered by a wildcard."""
    if not _has(_words(own, "verbs"), part["verbs"][0]):
        return False
    if urls := part.get("nonResourceURLs"):
        return any(_path_matches(one, urls[0]) for one in _words(own, "nonResourceURLs"))
    resource = part["resources"][0]
    names, wanted = _words(own, "resourceNames"), part.get("resourceNames")
    return (
        _has(_words(own, "apiGroups"), part["apiGroups"][0])
        and _resource_matches(_words(own, "resources"), resource, resource.partition("/")[2])
        and (not names or (wanted is not None and wanted[0] in names))
    )


def shown(rule: Json) -> str:
    """A rule as the real server writes it into a refusal."""
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
