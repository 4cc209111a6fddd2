"""What the page of a comparison says of the specs of its runs, and what it never says."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from tests.views.why_values import elastic, pytorch, tfjob
from trainyard.objects import Json
from trainyard.views.comparison import CONTEXT, MAX_TEXT, differences, refusal


def run(master: Json | None = None, worker: Json | None = None, workers: int = 2, **pod: Any) -> Json:
    """A TfJob whose main containers have these fields; `pod`: fields of the pods of both roles."""
    job = deepcopy(tfjob())
    for role, fields in zip(job["spec"]["replicaSpecs"], (master, master if worker is None else worker), strict=True):
        role["template"]["spec"]["containers"][0].update(fields or {})
        role["template"]["spec"].update(deepcopy(pod))
    job["spec"]["replicaSpecs"][1]["replicas"] = workers
    return job


def rows(*jobs: Json) -> list[tuple[Any, ...]]:
    """The field with its roles, and the values."""
    return [
        (" ".join((*difference.roles, difference.field)), *difference.values) for difference in differences(list(jobs))
    ]


def env(**values: str) -> Json:
    return {"env": [{"name": name, "value": value} for name, value in values.items()]}


def source(name: str, **reference: Json) -> Json:
    return {"env": [{"name": name, "valueFrom": reference}]}


def secret(name: str) -> Json:
    return source("DATA", secretKeyRef={"name": name, "key": "k"})


CASES: dict[str, tuple[Json, Json, list[tuple[Any, ...]]]] = {
    "nothing": (run(), run(), []),
    "image of all roles": (run({"image": "tf:2.20"}), run({"image": "tf:2.21"}), [("image", "tf:2.20", "tf:2.21")]),
    "image of a role": (
        run({"image": "a"}, {"image": "b"}),
        run({"image": "a"}, {"image": "c"}),
        [("worker image", "b", "c")],
    ),
    "image of each role": (
        run({"image": "a"}, {"image": "a"}),
        run({"image": "b"}, {"image": "c"}),
        [("master image", "a", "b"), ("worker image", "a", "c")],
    ),
    "command": (
        run({"command": ["python", "a b.py"]}),
        run({"command": ["python", "a", "b.py"]}),
        [("command", 'python "a b.py"', "python a b.py")],
    ),
    "args": (run({"args": ["--lr=0.1"]}), run(), [("args", "--lr=0.1", None)]),
    "replicas": (run(), run(workers=4), [("worker replicas", "2", "4")]),
    "env": (run(env(LR="0.1", BATCH="32")), run(env(LR="0.05", BATCH="32")), [("env LR", "0.1", "0.05")]),
    "env in another order": (run(env(A="1", B="2")), run(env(B="2", A="1")), []),
    "env that only one run has": (run(env(LR="0.1")), run(), [("env LR", "0.1", None)]),
    "env without a value": (run(env(LR="")), run(env(LR="1")), [("env LR", "", "1")]),
    "env of one role": (
        run(env(LR="0.1"), {}),
        run(env(LR="0.2"), {}),
        [("master env LR", "0.1", "0.2")],
    ),
    "env of a ConfigMap": (
        run(source("LR", configMapKeyRef={"name": "a", "key": "lr"})),
        run(source("LR", configMapKeyRef={"name": "b", "key": "lr"})),
        [("env LR", "from ConfigMap a, lr", "from ConfigMap b, lr")],
    ),
    "env of a field": (
        run(source("NODE", fieldRef={"fieldPath": "spec.nodeName"})),
        run(source("NODE", resourceFieldRef={"resource": "limits.cpu"})),
        [("env NODE", "from spec.nodeName", "from limits.cpu")],
    ),
    "env of two Secrets": (run(secret("mine")), run(secret("theirs")), []),
    "env of a Secret, and a literal one": (
        run(secret("mine")),
        run(env(DATA="/data")),
        [("env DATA", "from a Secret", "/data")],
    ),
    "env from": (
        run({"envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "mine"}}]}),
        run({"envFrom": [{"configMapRef": {"name": "b"}, "prefix": "B_"}, {"secretRef": {"name": "theirs"}}]}),
        [("env from", "ConfigMap a, a Secret", "ConfigMap b as B_*, a Secret")],
    ),
    "resources": (
        run({"resources": {"limits": {"memory": "1Gi", "nvidia.com/gpu": 1}}}),
        run({"resources": {"limits": {"memory": "2Gi", "nvidia.com/gpu": 1}, "requests": {"cpu": "1"}}}),
        [("requests cpu", None, "1"), ("limits memory", "1Gi", "2Gi")],
    ),
    "resources of one value": (
        run({"resources": {"limits": {"memory": "1Gi", "cpu": "1000m"}}}),
        run({"resources": {"limits": {"cpu": 1, "memory": "1024Mi"}}}),
        [],
    ),
    "init containers by name": (
        run(initContainers=[{"name": "fetch", "image": "f:1"}, {"name": "check", "image": "c"}]),
        run(initContainers=[{"name": "check", "image": "c"}, {"name": "fetch", "image": "f:2"}]),
        [("init fetch image", "f:1", "f:2")],
    ),
    "fields of a wrong type": (
        run({"env": "LR", "resources": ["cpu"], "envFrom": [None], "command": ["train"]}),
        run({"env": [None], "resources": {"limits": None}, "command": ["train"]}),
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_only_what_differs_is_listed(case: str) -> None:
    first, second, expected = CASES[case]
    assert rows(first, second) == expected
    assert rows(second, first) == [(name, right, left) for name, left, right in expected]


def test_containers_beside_the_main_one_are_compared_by_name() -> None:
    first, second = run(), run()
    for job, images in ((first, ("log", "sync:1")), (second, ("sync:2", "log"))):
        for role in job["spec"]["replicaSpecs"]:
            role["template"]["spec"]["containers"] += [
                {"name": image.partition(":")[0], "image": image} for image in images
            ]
    assert rows(first, second) == [("sync image", "sync:1", "sync:2")]


def test_the_main_containers_of_two_kinds_are_compared() -> None:
    """Roles by name: that of the master, which the second has not, is no difference of the image."""
    first, second = run({"image": "a"}), pytorch()
    second["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] = "b"
    listed = rows(first, second)
    assert listed[0] == ("kind", "TfJob tensorflow.org/v1alpha1", "PyTorchJob kubeflow.org/v1")
    assert listed[1:3] == [("main container", "tensorflow", "pytorch"), ("master replicas", "1", None)]
    assert ("image", "a", "b") in listed


def test_a_role_that_one_of_three_runs_lacks_is_compared_in_the_others() -> None:
    first, second = run({"image": "m:1"}, {"image": "w"}), run({"image": "m:2"}, {"image": "w"})
    third = elastic()
    third["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["image"] = "w"
    assert ("master image", "m:1", "m:2", None) in rows(first, second, third)


def test_a_job_of_an_unknown_kind_differs_in_its_kind() -> None:
    assert rows({"kind": "X", "apiVersion": "y/v1"}, {"kind": "X", "apiVersion": "y/v2"}) == [
        ("kind", "X y/v1", "X y/v2")
    ]


def test_secrets_are_never_shown() -> None:
    """Neither the literal value of a variable with such a name, wherever it appears, nor anything of a Secret."""
    first = run(env(HF_TOKEN='hunter2-"first"', URL='http://me:hunter2-"first"@host', PIN_SECRET="77"))
    first["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["args"] = ["--token", 'hunter2-"first"']
    second = run(env(HF_TOKEN="hunter2-second", URL="http://me:hunter2-second@host"))
    second["spec"]["replicaSpecs"][1]["template"]["spec"]["containers"][0]["env"].append(secret("classified")["env"][0])
    second["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2-second"}
    text = msgspec.json.encode(differences([first, second])).decode()
    for canary in ("hunter2", "77", "classified"):
        assert canary not in text
    listed = {name: values for name, *values in rows(first, second)}
    assert listed["env HF_TOKEN"] == ["(masked)", "(masked)"]
    assert listed["env PIN_SECRET"] == ["(masked)", None]
    assert listed["env URL"] == ["http://me:(masked)@host"] * 2
    assert listed["master args"] == ["--token (masked)", None]


def test_of_a_long_value_the_part_that_differs_is_shown() -> None:
    beginning = "x" * 1000
    ((_, left, right),) = rows(run(env(CODE=f"{beginning}a{beginning}")), run(env(CODE=f"{beginning}b")))
    assert left.startswith(f"… {'x' * CONTEXT}ax") and left.endswith(" …") and len(left) == MAX_TEXT + 4
    assert right == f"… {'x' * CONTEXT}b"
    ((_, left, right),) = rows(run(env(CODE=beginning)), run(env(CODE=beginning * 2)))
    assert left == f"… {'x' * CONTEXT}" and right.startswith(f"… {'x' * CONTEXT}x")


@pytest.mark.parametrize(
    ("runs", "text"), [(0, "names no jobs"), (1, "names one job"), (2, ""), (8, ""), (9, "names 9 jobs")]
)
def test_two_to_eight_runs_are_compared(runs: int, text: str) -> None:
    assert text in refusal(runs)
    assert bool(refusal(runs)) is not (2 <= runs <= 8)
