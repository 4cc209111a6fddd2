"""A kind that is defined in thirty lines, right here, has everything that the others have, when its module is in
`kinds.REGISTRY`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import pytest
import yaml
from click.testing import CliRunner
from msgspec import Meta

from tests.model.explorer import InitialState, explore
from tests.model.scenarios import Scenario
from tests.model.simulated_job import simulate
from tests.model.transitions import Bounds
from tests.support.samples import job_of, pods
from trainyard import kinds
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.cli.lint import lint
from trainyard.cli.plan import plan
from trainyard.core import (
    POD_CARRIER,
    Api,
    ExitAction,
    Kind,
    Lifecycle,
    ParsedSpec,
    PodRecipe,
    RestartScope,
    Role,
    RoleTable,
    Rule,
    Slot,
    StatusShape,
    violations,
)
from trainyard.core.names import digest
from trainyard.kinds import KindNames
from trainyard.kinds.pods.templates import PRESERVE_UNKNOWN, PodTemplate, copy_template
from trainyard.kinds.policies import Policies, policy_of
from trainyard.objects import GVK, Json, is_condition_true
from trainyard.objects.resources import POD
from trainyard.objects.structs import replace
from trainyard.schema import Schema, from_struct

# --- The kind. From here ...


class SparkleSpec(Policies, kw_only=True):
    """A sparkling job: workers that all have to end well."""

    workers: Annotated[int, Meta(ge=1, le=100, description="How many workers.")] = 1
    template: Annotated[PodTemplate | None, Meta(extra_json_schema=PRESERVE_UNKNOWN)] = None


TEXT = "the workers have nothing to run: write a template with a container named sparkle"
RULES = (Rule("spec", "has(self.template)", lambda spec, old: bool(spec.get("template")), TEXT, field="template"),)
SCHEMA = Schema({**from_struct(SparkleSpec), **PRESERVE_UNKNOWN})


def read(spec: Json, name: str) -> ParsedSpec:
    full = SCHEMA.default(spec)
    problems = [*SCHEMA.validate(full, "spec"), *violations(RULES, {"spec": full}, None)]
    roles = () if problems else (Role("Worker", full["workers"], 0, full["template"], digest(full["template"])),)
    return ParsedSpec(roles, policy_of(spec), spec, tuple(problems), tuple(SCHEMA.unknown_fields(spec)))


SPARKLE = Kind(
    Api(
        GVK("example.com", "v1", "SparkleJob", "sparklejobs"), "sparklejob", SparkleSpec, read,
        short_names=("spk",), rules=RULES,
        columns=({"name": "Sparkling", "type": "integer", "jsonPath": ".status.sparkling"},),
    ),
    RoleTable(lambda role: POD_CARRIER, "sparkle", child_resources=(POD,)),
    PodRecipe(
        lambda job, slot: f"{job.key.name}-{slot.index}", lambda job, slot: {"sparkle": job.key.name},
        lambda template, job, slot: copy_template(template),
    ),
    Lifecycle(
        lambda job: (frozenset(job.slots()),), restart_scope=RestartScope.SLOT,
        on_exit=lambda job, slot, code, reason: ExitAction.FAIL if code == 1 else ExitAction.RETRY,
    ),
    StatusShape(lambda job, outcome, counts: {"state": outcome.phase, "sparkling": counts["Worker"].get("Running", 0)}),
)  # fmt: skip

# --- ... to here.


def job(code: str = "", **spec: Any) -> Json:
    command = {"command": [sys.executable, "-c", code]} if code else {}
    template = pods("sparkle", "example.invalid/sparkle", restartPolicy="Never")
    template["spec"]["containers"][0] |= command
    return job_of("example.com/v1", "SparkleJob", {"workers": 2, "template": template, **spec})


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sparklejob")
    monkeypatch.setattr(module, "SPARKLEJOB", SPARKLE, raising=False)
    monkeypatch.setitem(sys.modules, "trainyard.kinds.sparklejob", module)
    monkeypatch.setitem(kinds.REGISTRY, "SPARKLEJOB", KindNames("sparklejob", SPARKLE.gvk, SPARKLE.api.short_names))


def written(folder: Path, wire: Json) -> str:
    fresh = {**wire, "metadata": {"name": wire["metadata"]["name"]}}
    (folder / "job.yaml").write_text(yaml.safe_dump(fresh))
    return str(folder / "job.yaml")


def test_the_sample_kind_has_thirty_lines() -> None:
    lines = Path(__file__).read_text().partition("# --- The kind.")[2].partition("# --- ... to here.")[0].splitlines()
    assert len([line for line in lines[1:] if line.strip()]) <= 30


def test_the_sample_kind_has_a_crd_with_schema_rules_and_columns() -> None:
    crd = kinds.crd(SPARKLE)
    (version,) = crd["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert crd["spec"]["names"]["shortNames"] == ["spk"]
    assert spec["properties"]["workers"]["maximum"] == 100 and "suspend" in spec["properties"]
    assert spec["x-kubernetes-validations"][0]["rule"] == "has(self.template)"
    assert version["additionalPrinterColumns"][0]["name"] == "Sparkling"


def test_the_sample_kind_has_a_page() -> None:
    text = kinds.kind_page(SPARKLE)
    assert "# SparkleJob" in text and "How many workers." in text and TEXT in text and "Sparkling" in text


def test_a_sample_job_can_be_linted_and_planned(tmp_path: Path) -> None:
    good = CliRunner().invoke(lint, [written(tmp_path, job())])
    assert good.exit_code == 0, good.stderr
    bad = CliRunner().invoke(lint, [written(tmp_path, job(workers=0, template=None))])
    assert bad.exit_code == 2 and TEXT in bad.stderr and "spec.workers" in bad.stderr
    slip = CliRunner().invoke(lint, [written(tmp_path, job(worker=3))])
    assert slip.exit_code == 2 and "spec.worker: there is no such field; did you mean workers?" in slip.stderr
    unknown = CliRunner().invoke(lint, [written(tmp_path, job(colour=3))])
    assert unknown.exit_code == 0 and "colour: is unknown" in unknown.stderr
    (document,) = json.loads(CliRunner().invoke(plan, [written(tmp_path, job()), "-o", "json"]).stdout)
    assert [create["metadata"]["name"] for create in document["creates"]] == ["example-0", "example-1"]
    assert document["status"]["state"] == "Created" and document["writes"] == 3


def test_a_sample_job_runs_through_its_life() -> None:
    """What the golden cases are made of."""
    simulated = simulate(SPARKLE, job(backoffLimit=1, cleanPodPolicy="All"))
    simulated.run()
    assert simulated.settle()["sparkling"] == 2
    simulated.end("example-0", 137)
    simulated.now += 60
    assert simulated.settle()["restarts"] == 1 and simulated.names() == ["example-1", "example-0"]
    simulated.run()
    for name in ("example-0", "example-1"):
        simulated.end(name, 0)
    assert simulated.settle()["state"] == "Succeeded" and not simulated.names()


def test_every_small_world_of_the_sample_kind_keeps_the_rules() -> None:
    spec = {key: value for key, value in job()["spec"].items() if key != "RuntimeId"}
    scenario = Scenario(
        kind=SPARKLE,
        spec=spec,
        slots=(Slot("Worker", 0), Slot("Worker", 1)),
        styles=("alone", "alone"),
        ends=((1, "Error"), (137, "Error")),
        permanent=lambda code, reason: code == 1,
        deciding=frozenset({0, 1}),
        wants=lambda spec: frozenset({0, 1}),
        bodies=True,
    )
    transitions = frozenset(
        ["pass", "dying pass", "unasked", "succeed", "fail", "drain", "suspend", "time", "delete pod"]
    )
    exploration = explore(InitialState({}, scenario, bounds=Bounds(trouble=1, time=1)), transitions=transitions)
    assert exploration.worlds > 100


async def test_a_sample_job_runs_on_a_local_cluster(tmp_path: Path) -> None:
    options = LocalClusterOptions(network="shared", cache=tmp_path / "cache", say=lambda text: None, parent=tmp_path)
    async with LocalCluster(options) as cluster:
        wire = job("print('sparkle')")
        del wire["metadata"]["uid"], wire["metadata"]["resourceVersion"]
        await cluster.api.create(SPARKLE.gvk, "default", wire)
        async with asyncio.timeout(30):
            async for _ in cluster.api.watch(SPARKLE.gvk, "default"):
                status = (await cluster.api.get(SPARKLE.gvk, "default", "example")).get("status") or {}
                if is_condition_true(status.get("conditions") or [], "Succeeded"):
                    break
    assert status["state"] == "Succeeded"


def test_another_api_group_is_one_argument_more() -> None:
    first, second = kinds.per_api_group([replace(SPARKLE, api=replace(SPARKLE.api, groups=("example.org",)))])
    assert (first.gvk.group, second.gvk.group) == ("example.com", "example.org")
