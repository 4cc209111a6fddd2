"""`get`, `describe`, `why -o json` and the progress of `run` tell the same of a job at the same resourceVersion."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.commands import SLEEP, commands_of_cluster, role, tfjob
from tests.support.waiting import until_async
from tests.views.why_job_cases import JOB_CASES
from tests.views.why_replica_cases import REPLICA_CASES
from tests.views.why_values import NOW, RUNNING, Case, ended, facts, pod
from tests.views.why_values import tfjob as observed_tfjob
from trainyard import kinds
from trainyard.app.evidence.related_objects import RelatedObjects
from trainyard.cli.command.jobs import JobInfo
from trainyard.cli.describe import describe_lines
from trainyard.cli.get import jobs_table
from trainyard.cli.output.job_lines import outcome_line, progress
from trainyard.objects import Json
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD
from trainyard.views.diagnosis import diagnose
from trainyard.views.job_row import JobRow, job_rows
from trainyard.views.job_view import JobView

RESTARTED = {"state": {"running": {}}, "restartCount": 2, "lastState": ended(1)}
CASES = (
    *JOB_CASES,
    *REPLICA_CASES,
    # The status is older than the pods, and the other way round.
    Case("restarts seen first", observed_tfjob(RUNNING), (pod("WORKER-0", RESTARTED),), 0, ()),
    Case(
        "restarts of pods that are gone",
        observed_tfjob(status={**observed_tfjob(RUNNING)["status"], "restarts": 5}),
        (pod("WORKER-0", RESTARTED),),
        0,
        (),
    ),
)


def cells(lines: list[list[str]]) -> dict[str, str]:
    heads, row = lines
    return dict(zip(heads, row, strict=True))


def field(lines: list[str], name: str) -> str:
    return next((line.split(maxsplit=1)[1] for line in lines if line.startswith(f"{name}:")), "")


def check(row: JobRow, job: Json, pods: list[Json], table: dict[str, str], described: list[str], why: Json) -> None:
    """Every number, state and message of the commands is that of the row."""
    assert table["STATE"] == field(described, "State") == why["state"] == row.state
    assert table["RESTARTS"] == (field(described, "Restarts") or "0") == str(row.restarts)
    assert table["RUNNING"] == f"{row.running}/{row.replicas}"
    roles = {role for role in row.states if any(role == name.lower() for name in role_names(job))}
    assert row.running == sum(row.states[role].get("Running", 0) for role in roles)
    shown = [line.split() for line in described if re.match(r"  [\w-]+-\d+  ", line)]
    assert sum(words[1] == "Running" and words[0].rpartition("-")[0] in roles for words in shown) == row.running
    assert why["resourceVersion"] == row.resource_version == job["metadata"].get("resourceVersion", "")
    assert why["job"] == f"{row.kind} {row.namespace}/{row.name}"
    levels = [finding["level"] for finding in why["findings"]]
    assert levels and (row.state != "Failed" or "problem" in levels)
    assert row.state != "Succeeded" or "problem" not in levels


def role_names(job: Json) -> list[str]:
    kind = kinds.kind_of(job)
    assert kind is not None
    return [role.name for role in JobView({"": job}).parsed("").roles]  # type: ignore[union-attr]  # the kind is known


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_all_commands_tell_the_same_of_the_same_objects(case: Case) -> None:
    job, pods = {**case.job, "metadata": {**case.job["metadata"], "resourceVersion": "77"}}, list(case.pods)
    kind = kinds.kind_of(job)
    assert kind is not None
    info = JobInfo(kind, job)
    (row,) = job_rows([job], pods, NOW)
    table = cells(jobs_table([info], pods, False, True))
    described = describe_lines(info, RelatedObjects(pods, list(case.more.get("children", ()))), NOW, 10**6)
    check(row, job, pods, table, described, diagnose(facts(job, *pods, **case.more)).to_json())
    assert table["WHY"] == row.message
    outcome = outcome_line(job, NOW)
    assert outcome.split(": ")[1].startswith(row.state) and row.message in outcome
    line = progress(JobView.of([job], pods, NOW), 1.0, NOW)
    assert f"{row.name} {row.state}" in line
    assert re.findall(r"restarts: (\d+)", line) == [str(row.restarts)] * bool(row.restarts)


async def test_the_commands_tell_the_same_of_a_cluster(tmp_path: Path) -> None:
    crash = "import sys; print('ValueError: no data'); sys.exit(3)"
    async with commands_of_cluster(tmp_path) as trainyard:
        await trainyard.submit(tfjob(role("MASTER", SLEEP), role("WORKER", crash, 2)))
        await trainyard.until("exit code 3", "why", "mnist", "-o", "json")

        async def look() -> tuple[list[str], Json, list[Json]]:
            table = (await trainyard("get", "mnist")).out.splitlines()
            job = json.loads((await trainyard("get", "mnist", "-o", "json")).out)
            return table, job, (await trainyard.cluster.api.list(POD, "default", OWNER))["items"]

        async def look_between_two_equal_states() -> tuple[list[str], Json, list[Json], list[str], Json] | None:
            state = await look()
            described = (await trainyard("describe", "mnist", "-o", "wide")).out.splitlines()
            why = json.loads((await trainyard("why", "mnist", "-o", "json")).out)
            return (*state, described, why) if state[1:] == (await look())[1:] else None  # AGE is another each second

        # The job and its pods must not change between the commands: a back-off is long enough.
        table, job, pods, described, why = await until_async(look_between_two_equal_states, "the job does not change")
        (row,) = job_rows([job], pods, NOW)
        assert row.restarts > 0 and any(finding["level"] == "problem" for finding in why["findings"])
        heads, values = (re.split(r"\s{2,}", line) for line in table)
        check(row, job, pods, dict(zip(heads, values, strict=True)), described, why)
