"""A field without an effect on one machine is noted once per job, in the same text by lint, run, submit and why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.commands import SLEEP, commands_of_cluster, role, run_in_process, tfjob
from tests.cli.run_values import container, job, run_to_end
from trainyard.objects import Json
from trainyard.server.registry import discovery

FIELDS: Json = {"nodeSelector": {"disk": "ssd"}, "securityContext": {"runAsUser": 1000}}
NOTES = [
    ("nodeSelector", "no effect on one machine (MASTER, WORKER): this machine is the only node"),
    ("runAsUser", "no effect on one machine (MASTER, WORKER): every program runs as the user who started"),
]


def with_fields(job: Json) -> Json:
    for replica_spec in job["spec"]["replicaSpecs"]:
        replica_spec["template"]["spec"] |= FIELDS
    return job


def notes_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if "note: " in line]


def tells(text: str) -> bool:
    """Each field once, and nothing else is noted."""
    notes = notes_of(text)
    return len(notes) == len(NOTES) and all(message in line for (_, message), line in zip(NOTES, notes, strict=True))


def has_places(text: str) -> bool:
    return all(re.search(r"job\.yaml:[0-9]+: note: spec\.\S+: ", line) for line in notes_of(text))


def written(folder: Path, *objects: Json) -> Path:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return path


def test_lint_names_the_line_of_the_first_place_and_ends_with_0(tmp_path: Path) -> None:
    path = written(tmp_path, with_fields(tfjob(role("MASTER", SLEEP), role("WORKER", SLEEP, 2))))
    answer = run_in_process("lint", str(path))
    assert (
        answer.code == 0
        and tells(answer.err)
        and has_places(answer.err)
        and "no problem, 0 warnings, 2 notes" in answer.out
    )
    lines = path.read_text().splitlines()
    for (field, _), note in zip(NOTES, notes_of(answer.err), strict=True):
        number = int(note.partition(": ")[0].rpartition(":")[2])
        assert field in lines[number - 1], note


async def test_submit_prints_notes_for_a_local_cluster_and_why_repeats_them(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        answer = await trainyard.submit(with_fields(tfjob(role("MASTER", SLEEP), role("WORKER", SLEEP, 2))))
        assert answer.code == 0 and tells(answer.err)
        assert tells((await trainyard.until("it runs fine", "why", "mnist")).out)


async def test_notes_are_not_printed_for_a_real_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version: dict[str, Any] = discovery.VERSION
    monkeypatch.setitem(version, "gitVersion", "v1.37.1")
    async with commands_of_cluster(tmp_path) as trainyard:
        answer = await trainyard.submit(with_fields(tfjob(role("MASTER", SLEEP))))
        assert answer.code == 0 and notes_of(answer.err) == []
        assert notes_of((await trainyard.until("it runs fine", "why", "mnist")).out) == []


def test_run_prints_notes_once_and_the_node_does_not_repeat_them(tmp_path: Path) -> None:
    spec = {"restartPolicy": "Never", "containers": [container("print('done')")], **FIELDS}
    listed = [{"tfReplicaType": name, "template": {"spec": spec}} for name in ("MASTER", "WORKER")]
    end = run_to_end(tmp_path, [job(*listed)], "--network", "shared")
    assert end.code == 0 and tells(end.err) and has_places(end.err) and "node: " not in end.err, end.err
