"""Objects that were stored under the definitions of the old operators: they load, keep every field, and go on.

The old definitions said nothing of what is inside, and had no status of its own path.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.control_plane.job_life import operated, path_of, succeeds
from tests.control_plane.test_definitions_on_a_real_server import wire
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.samples import ALL_WITH_TEMPLATES, sample
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import Json, encode, find_condition

pytestmark = pytest.mark.cluster
EXAMPLES = Path(__file__).parents[2] / "examples"
ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def old_crd(kind: Kind) -> Json:
    """As the old operators' definition was when it was carried over to apiextensions.k8s.io/v1."""
    crd = kinds.crd(kind)
    version = {**crd["spec"]["versions"][0], "schema": {"openAPIV3Schema": ANYTHING}}
    for name in ("subresources", "additionalPrinterColumns"):
        version.pop(name, None)
    return {**crd, "spec": {**crd["spec"], "versions": [version]}}


def odd(job: Json) -> Json:
    """With what no definition of ours names, nulls where Go has nil, and a number where 2.0 stands for 2."""
    job = copy.deepcopy(job)
    spec = job["spec"]
    spec["ourOwn"] = {"list": [1, None, "x"], "nothing": None}
    for template in templates(spec):
        template["metadata"] = {"creationTimestamp": None, "labels": None}
        template["ofTomorrow"] = {"deep": [{"er": None}]}
        pod = template["spec"]
        pod |= {"volumes": None, "nodeSelector": None, "newerThanKubernetes": {"a": [1, 2]}, "hostNetwork": None}
        pod["containers"][0] |= {
            "resources": {"limits": {"cpu": 0.5, "memory": "1Gi"}, "newer": True},
            "env": [{"name": "A", "value": None, "newer": 1}],
            "livenessProbe": {"httpGet": {"port": "http", "httpHeaders": [{"name": "X"}]}},
            "ports": [{"containerPort": 80, "newer": "x"}],
        }
    return job


def templates(spec: Json) -> Iterator[Json]:
    if isinstance(spec, dict):
        for name, part in spec.items():
            if name == "template":
                yield part
            else:
                yield from templates(part)
    for part in spec if isinstance(spec, list) else ():
        yield from templates(part)


@pytest.fixture(scope="module")
def old() -> Iterator[ControlPlane]:
    """A cluster with the old operators' CRDs and no operator."""
    with ControlPlane() as plane:
        items = [old_crd(kind) for kind in ALL_WITH_TEMPLATES]
        plane.kubectl("create", "-f", "-", stdin=encode({"apiVersion": "v1", "kind": "List", "items": items}).decode())
        for item in items:
            plane.kubectl("wait", f"crd/{item['metadata']['name']}", "--for=condition=Established", "--timeout=60s")
        plane.add_node("played")
        yield plane


STATUS: Json = {"conditions": None, "phase": "Creating", "state": "", "reason": "", "ofOld": {"a": [None]}}


async def test_every_object_keeps_every_field_and_is_finished_by_our_operator(old: ControlPlane) -> None:
    stored: list[tuple[Kind, str, Json]] = []
    for kind in ALL_WITH_TEMPLATES:
        namespace = f"{kind.gvk.plural}-{kind.gvk.group.replace('.', '-')}"
        create_namespace(old, namespace)
        for number, job in enumerate((sample(kind.gvk.kind), odd(sample(kind.gvk.kind)))):
            job["spec"] |= {"RuntimeId": f"run{number}"} if "RuntimeId" in job["spec"] else {}
            meta = {"name": f"job-{number}", "labels": {"old": "yes"}}
            sent = {**wire(kind, job), "metadata": meta, "status": STATUS}
            code, answer = old.ask("POST", path_of(kind, namespace), sent)
            assert code == 201 and answer["status"] == STATUS, answer
            stored.append((kind, namespace, answer))
    wrong = wrong_template(old)
    install(old)
    for kind, namespace, before in stored:
        code, now = old.ask("GET", path_of(kind, namespace, before["metadata"]["name"]))
        assert code == 200
        assert without_defaults(now, before) == {**before, "metadata": now["metadata"]}
    async with operated(old):
        for kind, namespace, before in stored:
            ended = await succeeds(old, kind, namespace, before["metadata"]["name"])
            assert without_defaults({"spec": ended["spec"]}, before)["spec"] == before["spec"]
        await assert_fails(old, wrong)


def without_defaults(now: Json, before: Json) -> Json:
    """The object without fields that were not there before."""

    def cut(new: object, old: object) -> object:
        if isinstance(new, dict) and isinstance(old, dict):
            return {name: cut(part, old[name]) for name, part in new.items() if name in old}
        if isinstance(new, list) and isinstance(old, list):
            return [cut(a, b) for a, b in zip(new, old, strict=True)]
        return new

    difference = cut(now, before)
    assert isinstance(difference, dict)
    return difference


def wrong_template(plane: ControlPlane) -> str:
    """A job with a malformed template, which no operator has observed yet. Its path."""
    create_namespace(plane, "wrong")
    job = wire(kinds.TFJOB, sample("TfJob"))
    next(templates(job["spec"]))["spec"]["containers"][0]["env"] = [{"name": "A", "value": 5}]
    code, answer = plane.ask("POST", path_of(kinds.TFJOB, "wrong"), job)
    assert code == 201, answer
    return path_of(kinds.TFJOB, "wrong", job["metadata"]["name"])


async def assert_fails(plane: ControlPlane, path: str) -> None:
    """Its status can be written although its spec would not be taken today, and so can its labels."""

    def failed() -> Json | None:
        return find_condition((plane.ask("GET", path)[1].get("status") or {}).get("conditions") or [], "Failed")

    status = await until_async(
        lambda: asyncio.to_thread(failed),
        "the job is Failed",
        context=lambda: plane.ask("GET", path)[1],
        pause=SLOW_PAUSE,
    )
    assert status["reason"] == "InvalidSpec" and "containers[0].env[0].value" in status["message"]
    code, now = plane.ask("PATCH", path, {"metadata": {"labels": {"edited": "yes"}}})
    assert code == 200 and now["metadata"]["labels"]["edited"] == "yes", now


@pytest.mark.parametrize("file", ["tf_job_dist_train.yaml", "mx_job_dist.yaml", "chainerjob-mn.yaml"])
def test_a_readme_job_of_then_is_a_job_of_now(old: ControlPlane, file: str) -> None:
    (job,) = yaml.safe_load_all((EXAMPLES / file).read_text())
    kind = kinds.kind_of(job)
    assert kind is not None
    install(old)
    code, answer = old.ask("POST", path_of(kind, "default") + "?dryRun=All", job)
    assert code == 201 and without_defaults(answer, job)["spec"] == job["spec"], answer
