"""Small tables: paths, durations, JSON paths, names."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.api_types.names import name_problem
from trainyard.server.model.paths import Target, parse
from trainyard.server.registry.jsonpath import compile_path
from trainyard.server.registry.metadata import generate_name
from trainyard.server.registry.tables import short_duration

PATHS = [
    ("/api/v1/pods", Target("", "v1", "pods", "", "", "")),
    ("/api/v1/namespaces", Target("", "v1", "namespaces", "", "", "")),
    ("/api/v1/namespaces/x", Target("", "v1", "namespaces", "", "x", "")),
    ("/api/v1/namespaces/x/status", Target("", "v1", "namespaces", "", "x", "status")),
    ("/api/v1/namespaces/x/pods", Target("", "v1", "pods", "x", "", "")),
    ("/api/v1/namespaces/x/pods/p/log", Target("", "v1", "pods", "x", "p", "log")),
    ("/apis/batch/v1/namespaces/x/jobs/j/status", Target("batch", "v1", "jobs", "x", "j", "status")),
    ("/apis/g.io/v1/things/a%2Fb", Target("g.io", "v1", "things", "", "a/b", "")),
    ("/apis/batch/v1", None),
    ("/api/v1", None),
    ("/", None),
    ("/api/v1/namespaces/x/pods/p/log/more", None),
    ("/api/v1/namespaces//pods", None),
    ("/version", None),
]


@pytest.mark.parametrize(("path", "target"), PATHS)
def test_a_path_is_read_by_the_grammar(path: str, target: Target | None) -> None:
    assert parse(path) == target


DURATIONS = [
    (-5, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"), (600, "10m"), (3 * 3600 - 1, "179m"),
    (3 * 3600, "3h"), (3 * 3600 + 60, "3h1m"), (8 * 3600, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"),
    (49 * 3600, "2d1h"), (9 * 86400, "9d"), (2 * 365 * 86400, "2y"), (2 * 365 * 86400 + 86400, "2y1d"),
    (9 * 365 * 86400, "9y"),
]  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), DURATIONS)
def test_a_duration_is_formatted_as_by_kubectl(seconds: int, text: str) -> None:
    assert short_duration(seconds) == text


OBJ = {"spec": {"n": 1, "a.b": 2, "list": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]}}
JSON_PATHS = [
    (".spec.n", [1]),
    (".spec.missing", []),
    (r".spec.a\.b", [2]),
    (".spec['a.b']", [2]),
    (".spec.list[1].type", ["X"]),
    (".spec.list[-1].type", ["X"]),
    (".spec.list[-1:].type", ["X"]),
    (".spec.list[:1].type", ["Ready"]),
    (".spec.missing[-1:].type", []),
    (".spec.list[9].type", []),
    (".spec.list[*].type", ["Ready", "X"]),
    ('.spec.list[?(@.type=="Ready")].status', ["True"]),
    ("{.spec.n}", [1]),
]


@pytest.mark.parametrize(("path", "expected"), JSON_PATHS)
def test_a_json_path_selects_its_value(path: str, expected: list[Any]) -> None:
    assert compile_path(path)(OBJ) == expected
    oddities: tuple[Any, ...] = (None, [], "x", 1, {"spec": None})
    for odd in oddities:
        compile_path(path)(odd)


@pytest.mark.parametrize("path", ["", "spec", ".spec[", ".spec[?(@.a>1)]", "..a", 5])
def test_a_json_path_that_cannot_be_read_is_refused(path: Any) -> None:
    with pytest.raises(ValueError, match="JSON path"):
        compile_path(path)


@pytest.mark.parametrize(
    ("name", "rule", "legal"),
    [
        ("a-b", "label", True), ("a.b", "label", False), ("a.b", "subdomain", True), ("-a", "label", False),
        ("A", "subdomain", False), ("a\n", "label", False), ("", "subdomain", False), ("1a", "service", False),
        ("1a", "label", True), ("a" * 63, "label", True), ("a" * 64, "label", False), ("a" * 253, "subdomain", True),
        ("a" * 254, "subdomain", False), ("é", "label", False), ("a\x00", "label", False),
    ],
)  # fmt: skip
def test_names_are_legal_or_not(name: str, rule: str, legal: bool) -> None:
    assert (name_problem(name, rule) is None) is legal


def test_a_generated_name_fits_a_label() -> None:
    name = generate_name("x" * 80)
    assert len(name) == 63
    assert generate_name("job-").startswith("job-") and len(generate_name("job-")) == 9
