"""Every field of the source kinds is in the result of a conversion, or the report names it.

The fields are those of the kinds' own schemas, so that a new field cannot be forgotten.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.conversion.jobs import CONVERSIONS, job
from trainyard import kinds
from trainyard.conversion import Conversion, convert
from trainyard.core import Kind
from trainyard.kinds.pods.pod_templates import fields_of_types
from trainyard.objects import Json, templates_of
from trainyard.schema import from_struct

IDS = [f"{kind.gvk.kind}.{kind.gvk.version}.{kind.gvk.group}-{target}" for kind, target in CONVERSIONS]
every_conversion = pytest.mark.parametrize(("kind", "target"), CONVERSIONS, ids=IDS)
VALUES: dict[str, list[Any]] = {
    "integer": [3, 1, 2, 70000],
    "boolean": [True, False],
    "string": ["chief", "c10d", "kueue.x-k8s.io/multikueue", "etcd", "2", "mpi", "host:1", "WORKER", "abcd"],
    "object": [{"cpu": "1"}],
    "array": [[{"key": "a", "value": "b"}], [{"name": "x", "mountPath": "/x"}]],
}
SAME_AS_UNSET: dict[str, tuple[Any, ...]] = {
    "cleanPodPolicy": ("None", "Running"),  # None is what happens without it; a TrainJob always does Running
    "backend": ("mpi", ""),
    "successPolicy": ("",),
    "enableDynamicWorker": (False,),
    "standalone": (False,),
    "IsDefaultPS": (False, True),  # True: that of a PS without a template; test_kubeflow.py has the others
    "nprocPerNode": ("auto",),
    "rdzvBackend": ("etcd", "c10d"),
    "minReplicas": (2,),  # as many as replicas
    "maxReplicas": (2,),
    "masterTaskType": ("master",),
    "tfReplicaType": ("MASTER",),
    "tfPort": (2222,),
    "slots": (1,),
    "slotsPerWorker": (1,),
    "mainContainer": ("mpi",),  # the first container
    "runLauncherAsWorker": (False,),
    "launcherCreationPolicy": ("AtStartup",),
    "mpiImplementation": ("OpenMPI",),
}
"""Field -> values that are the same as no value for the result, because they are the default of one of the sides."""


UNTESTED = {"replica_specs", "tfReplicaType", "backend", "tensorboard", "tensorBoard"}
"""Fields without another legal value in the sample: the second name of its list, the key of a replica set, the only
backend, and TensorBoard's fields beside its required one, with which they are reported as a whole."""


def field_paths(schema: Json, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """The fields below a schema that have no fields of their own, with their schemas. "*" is any key of a map."""
    if path and path[-1] == "template":
        yield path, schema
        return
    below = [
        *((name, value) for name, value in (schema.get("properties") or {}).items()),
        *(
            [("*", schema["additionalProperties"])]
            if (schema.get("additionalProperties") or {}).get("properties")
            else []
        ),
        *([(0, schema["items"])] if (schema.get("items") or {}).get("properties") else []),
    ]
    if not below:
        yield path, schema
    for name, value in below:
        yield from field_paths(value, (*path, name))


def variants(obj: Json, path: tuple[str | int, ...], value: Any) -> Iterator[Json]:
    """Copies of the job with a value at a path: one for each item of its lists and each key of its maps ("*")."""
    for places in product(*_places(obj["spec"], path)):
        result = copy.deepcopy(obj)
        node: Any = result["spec"]
        for name, following in zip(places, (*places[1:], ""), strict=True):
            if following == "":
                if name == "template":
                    container = next(templates_of(obj["spec"], "spec"))[1]["spec"]["containers"][0]["name"]
                    value = {"spec": {"containers": [{"name": container, "image": "another"}]}}
                node[name] = value
            elif isinstance(node, list):
                node.extend([{}] if int(name) >= len(node) else [])
                node = node[int(name)]
            else:
                node = node.setdefault(name, [] if isinstance(following, int) else {})
        yield result


def _places(node: Any, path: tuple[str | int, ...]) -> list[list[str | int]]:
    """For each step of the path, the keys or indexes that it stands for in the job."""
    places: list[list[str | int]] = []
    for name in path:
        keys: list[str | int] = [name]
        if name == "*":
            keys = list(node)
        elif name == 0:
            keys = list(range(max(1, len(node or ()))))
        places.append(keys)
        node = node[keys[0]] if node and keys[0] in (node if isinstance(node, dict) else range(len(node))) else None
    return places


def reported_paths(conversion: Conversion) -> list[str]:
    return [problem.path for problem in (*conversion.unmapped, *conversion.notes)]


def is_accounted_for(base: Conversion, conversion: Conversion, *path: str | int) -> bool:
    """Whether the result has changed, or the report names the field or the whole object that it is in."""
    paths = reported_paths(conversion)
    return (
        conversion.objects != base.objects
        or f"spec.{path[0]}" in paths
        or any(str(path[-1]) in reported for reported in paths)
    )


@every_conversion
def test_every_field_is_mapped_or_reported(kind: Kind, target: str) -> None:
    base_job = job(kind)
    base = convert(base_job, target)
    lost, untested = [], []
    for path, schema in field_paths(from_struct(kind.api.spec_type)):
        field = str(path[-1])
        values = [*(schema.get("enum") or ()), *VALUES.get(str(schema.get("type")), [])]
        values += [] if schema.get("type") else VALUES["object"]  # and the template, which `variants` makes
        jobs = [(value, obj) for value in values for obj in variants(base_job, path, value)]
        valid = [(value, obj) for value, obj in jobs if not kinds.admit(kind, obj)[1] and obj != base_job]
        if not valid:
            untested.append(path)
        lost += [
            (path, value)
            for value, obj in valid
            if value not in SAME_AS_UNSET.get(field, ()) and not is_accounted_for(base, convert(obj, target), *path)
        ]
    assert not lost
    assert not [path for path in untested if not {path[0], path[-1]} & UNTESTED]


@every_conversion
@pytest.mark.parametrize("place", [(), ("runPolicy",), ("template",)])
def test_a_field_that_no_conversion_knows_is_reported_or_kept(kind: Kind, target: str, place: tuple[str, ...]) -> None:
    obj = job(kind)
    if place == ("template",):
        for _, template in templates_of(obj["spec"], "spec"):
            template["spec"]["futureField"] = "of a newer Kubernetes"
            template["spec"]["containers"][0]["futureField"] = "of a newer Kubernetes"
        conversion = convert(obj, target)
        assert str(conversion.objects).count("futureField") >= 2
        return
    node = obj["spec"]
    for name in place:
        node = node.setdefault(name, {})
    node["futureField"] = 1
    path = ".".join(("spec", *place))
    assert {path, f"{path}.futureField"} & set(reported_paths(convert(obj, target)))


POD_FIELDS = [("PodSpec", field.rstrip("!")) for field in fields_of_types()["PodSpec"]] + [
    ("Container", field.rstrip("!")) for field in fields_of_types()["Container"]
]


@every_conversion
def test_every_field_of_the_pods_is_in_the_result(kind: Kind, target: str) -> None:
    for owner, field in POD_FIELDS:
        if field in ("containers", "name", "restartPolicy"):
            continue
        obj = job(kind)
        for _, template in templates_of(obj["spec"], "spec"):
            node = template["spec"] if owner == "PodSpec" else template["spec"]["containers"][0]
            node[field] = [{"name": "MARK"}] if field in ("env", "ports") else ["MARK"]
        result = str(convert(obj, target).objects)
        assert "MARK" in result and field.removesuffix("s") in result, (owner, field)
