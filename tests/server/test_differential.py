"""The fuzzer itself: sequences are values, answers can be compared, a planted difference is found and shrunk."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.differential.allowed import DOCUMENTED, documented
from tests.differential.compare import Allowed, Difference, differences
from tests.differential.fuzz import Pair, campaign
from tests.differential.generate import sequence
from tests.differential.normal import normal
from tests.differential.shrink import shrunk
from tests.differential.steps import Answer, Step, Unresolved, read, renumbered, resolved, write
from tests.differential.target import embedded
from trainyard.objects.structs import replace
from trainyard.schema import Schema
from trainyard.server import Server
from trainyard.server.model.resources import no_mutation

UIDS = [f"{number:08d}-0000-4000-8000-000000000000" for number in range(3)]


def test_a_sequence_is_the_same_every_time_and_survives_a_file() -> None:
    for number in range(50):
        steps = sequence(3, number)
        assert steps == sequence(3, number)
        assert read(write(steps)) == steps
    assert sequence(3, 0) != sequence(4, 0)


def test_a_reference_takes_its_value_from_an_earlier_response() -> None:
    created = Answer(201, {}, {"metadata": {"uid": UIDS[0], "resourceVersion": "7", "name": "gen-x2x4z"}})
    step = Step("PUT", "/api/v1/namespaces/{ns}/configmaps/{0.name}", body={"metadata": {"uid": "{0.uid}"}})
    sent = resolved(step, [created], "here")
    assert sent.path == "/api/v1/namespaces/here/configmaps/gen-x2x4z"
    assert sent.body == {"metadata": {"uid": UIDS[0]}}
    with pytest.raises(Unresolved):
        resolved(Step("GET", "/{0.continue}"), [created], "here")
    assert renumbered(step, lambda number: number + 2).body == {"metadata": {"uid": "{2.uid}"}}


def _object(uid: str, version: int, **meta: Any) -> Answer:
    return Answer(200, {}, {"metadata": {"uid": uid, "resourceVersion": str(version), **meta}})


def test_equivalent_runs_are_equal() -> None:
    first = [_object(UIDS[0], 5, creationTimestamp="2026-01-01T00:00:00Z"), _object(UIDS[0], 9)]
    two = [_object(UIDS[1], 70, creationTimestamp="2027-02-02T00:00:00Z"), _object(UIDS[1], 71)]
    assert normal(first, "ns-1") == normal(two, "ns-2")


@pytest.mark.parametrize(
    "other",
    [
        [_object(UIDS[0], 5), _object(UIDS[1], 9)],  # another object
        [_object(UIDS[0], 5), _object(UIDS[0], 5)],  # nothing was written
        [_object(UIDS[0], 9), _object(UIDS[0], 5)],  # versions run backwards
    ],
)
def test_different_runs_differ(other: list[Answer]) -> None:
    assert normal([_object(UIDS[0], 5), _object(UIDS[0], 9)], "ns") != normal(other, "ns")


def test_a_generated_name_is_replaced_by_a_symbol_everywhere() -> None:
    meta = {"name": "gen-b2c4d", "generateName": "gen-"}
    not_found = Answer(404, {}, {"message": 'configmaps "gen-b2c4d" not found'})
    first, second = normal([_object(UIDS[0], 1, **meta), not_found], "ns")
    assert first["body"]["metadata"]["name"] == "<name 1>"
    assert second["body"]["message"] == 'configmaps "<name 1>" not found'
    refused = Answer(422, {}, {"details": {"name": "gen-b2c4d"}})
    assert normal([refused], "ns", ["gen-"])[0]["body"]["details"]["name"] == "<name 1>"


def test_differences_are_reported_by_field_and_a_different_code_alone() -> None:
    steps = [Step("GET", "/a"), Step("GET", "/b")]
    real = [{"code": 200, "body": {"a": [1, {"b": 2}]}}, {"code": 404, "body": {"reason": "NotFound"}}]
    ours = [{"code": 200, "body": {"a": [1, {"b": 3}], "c": True}}, {"code": 200, "body": {}}]
    causes = [
        (difference.number, difference.path, difference.real, difference.ours)
        for difference in differences(steps, real, ours)
    ]
    assert causes == [
        (0, "body.a[1].b", 2, 3),
        (0, "body.c", "<nothing>", True),
        (1, "code", "404 NotFound", "200"),
    ]
    (first, *_) = differences(steps, real, ours)
    assert Allowed("why", r"body\.a\.b").covers(first)
    assert not Allowed("why", r"body\.a").covers(first)


async def test_shrinking_keeps_the_needed_steps_and_their_references() -> None:
    steps = [
        Step("POST", "/x"),
        Step("POST", "/needed", body={"a": 1, "b": {"c": 2, "d": [3, 4]}}),
        Step("GET", "/y"),
        Step("PUT", "/z", {"dryRun": "All"}, body={"uid": "{1.uid}", "other": True}),
    ]

    async def shows(candidate: list[Step]) -> bool:
        bodies = [step.body for step in candidate if step.path == "/needed"]
        return bool(bodies and 4 in bodies[0].get("b", {}).get("d", ())) and candidate[-1].path == "/z"

    assert await shrunk(steps, shows) == [Step("POST", "/needed", body={"b": {"d": [4]}}), Step("PUT", "/z", body={})]


def test_intended_differences_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text()
    section = page[page.index("## The embedded API server") :]
    assert len(documented()) > 4
    for pattern, topic in documented():
        assert re.compile(pattern) and f"\n| {topic} | " in section, topic


def test_a_documented_difference_is_matched_by_its_whole_text() -> None:
    step = Step("PUT", "/api/v1/namespaces/x/configmaps/a")
    real, ours = '500 strconv.ParseUint: parsing "abc": invalid syntax', "422 Invalid"
    assert any(entry.covers(Difference(0, step, "code", real, ours)) for entry in DOCUMENTED)
    assert not any(entry.covers(Difference(0, step, "code", real, "200")) for entry in DOCUMENTED)


def _change(group: str, plural: str, **fields: Any) -> Callable[[Server], None]:
    def plant(server: Server) -> None:
        for resource in server.registry.all():
            if (resource.group, resource.plural) == (group, plural):
                server.registry.add(replace(resource, **fields))

    return plant


def _unfenced(server: Server) -> None:
    server._verbs._must_be_current = lambda *anything: None  # type: ignore[method-assign]


GROUP = "fuzz.example.org"
PLANTED: dict[str, Callable[[Server], None]] = {
    "a status that anybody may write": _change(GROUP, "gadgets", status=False),
    "fields that are not pruned": _change(GROUP, "gadgets", prune=False),
    "a schema that lets everything in": _change(GROUP, "gadgets", schema=Schema({"type": "object"})),
    "a generation that stands still": _change(GROUP, "gizmos", generation=False),
    "pods that are not filled in": _change("", "pods", prepare=no_mutation),
    "jobs that orphan nobody": _change("batch", "jobs", propagation="Foreground"),
    "a generation that nobody has": _change("", "configmaps", generation=True),
    "writes that name an old version": _unfenced,
}
SEQUENCES = range(120)


@pytest.fixture(scope="module")
def missed() -> dict[str, bool]:
    """The planted differences that were not detected."""
    return asyncio.run(_hunt())


async def _hunt() -> dict[str, bool]:
    async with embedded() as right:
        caught = await asyncio.gather(*(_finds(right, plant) for plant in PLANTED.values()))
        return {name: not differing for name, differing in zip(PLANTED, caught, strict=True)}


async def _finds(right: Any, plant: Callable[[Server], None]) -> bool:
    server = Server()
    async with embedded(server) as wrong:
        plant(server)
        pair = Pair(right, wrong)
        for start in range(0, len(SEQUENCES), 30):
            if await campaign(pair, 1, SEQUENCES[start : start + 30], shrink=False):
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_found(name: str, missed: dict[str, bool]) -> None:
    assert not missed[name], f"{len(SEQUENCES)} sequences did not see {name}"


@pytest.mark.slow
async def test_two_equal_servers_do_not_differ() -> None:
    async with embedded() as first, embedded() as other:
        assert not await campaign(Pair(first, other), 2, range(60), shrink=False)


async def test_a_planted_difference_shrinks_to_its_cause() -> None:
    server = Server()
    async with embedded() as right, embedded(server) as wrong:
        _change("", "configmaps", name_rule="path")(server)
        path = "/api/v1/namespaces/{ns}/configmaps"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "Bad_Name"}, "data": {"a": "b"}}
        steps = [Step("GET", path), Step("POST", path, {"fieldManager": "me"}, body), Step("GET", path)]
        pair = Pair(right, wrong)
        (difference,) = await pair.differ_again(steps)

        async def shows(candidate: list[Step]) -> bool:
            return any(
                candidate_difference.cause == difference.cause for candidate_difference in await pair.differ(candidate)
            )

        assert [(step.do, "data" in step.body) for step in await shrunk(steps, shows)] == [("POST", False)]


def test_a_revision_that_one_server_did_not_count_is_reported_once() -> None:
    def normalized(*versions: int) -> list[dict[str, Any]]:
        return normal([_object(UIDS[0], version) for version in versions], "ns")

    steps = [Step("GET", "/a")] * 5
    real, ours = normalized(5, 6, 6, 7, 7), normalized(5, 5, 5, 8, 8)
    assert [difference.number for difference in differences(steps, real, ours)] == [1]
    assert [difference.number for difference in differences(steps, real, normalized(5, 5, 5, 5, 8))] == [1, 3, 4]
