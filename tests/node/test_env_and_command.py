"""Environment, command lines, references: tables."""

from __future__ import annotations

import pytest

from trainyard.node.kubelet.spec.interpolation import expand, field, resource
from trainyard.node.kubelet.spec.pod_spec import (
    EnvContext,
    Missing,
    command_line,
    environment,
    references,
)
from trainyard.node.sandbox.inherited_environment import for_devices, inherited
from trainyard.objects import Json, pod_containers

POD: Json = {
    "metadata": {
        "name": "pod",
        "namespace": "here",
        "uid": "u-1",
        "labels": {"app": "x", "b": 'q"q'},
        "annotations": {"example.com/a": "note"},
    },
    "spec": {"nodeName": "local"},
    "status": {"podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}], "hostIP": "10.0.0.1"},
}
MAP: Json = {"data": {"one": "1", "two": "2", "not a name": "x"}}
SECRET: Json = {"data": {"password": "cGFzcw==", "broken": "%%%"}}
REFS = {("configmap", "map"): MAP, ("secret", "secret"): SECRET, ("configmap", "gone"): None}
GIVEN = EnvContext(POD, REFS, {"cpu": "4", "memory": "1024Ki"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $(", "$A ${A} $("),
        ("cost: $5", "cost: $5"),
        ("", ""),
    ],
)
def test_references_in_texts(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "pod"),
        ("metadata.namespace", "here"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['app']", "x"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['example.com/a']", "note"),
        ("metadata.labels", 'app="x"\nb="q\\"q"'),
        ("spec.nodeName", "local"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "10.1.1.1"),
        ("status.podIPs", "10.1.1.1"),
        ("status.hostIP", "10.0.0.1"),
        ("spec.nonsense", None),
    ],
)
def test_fields_of_the_pod(path: str, expected: str | None) -> None:
    assert field(POD, path) == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu"}, "2"),
        ({"resource": "limits.memory", "divisor": "1Ki"}, "1024"),
    ],
)
def test_resources_are_in_units_of_the_divisor_rounded_up(reference: Json, expected: str) -> None:
    container = {"resources": {"limits": {"cpu": "1500m"}}}
    assert resource(container, reference, GIVEN.capacity) == expected


def test_env_may_refer_to_earlier_variables_and_overrides_env_from() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "map"}, "prefix": "P_"}, {"secretRef": {"name": "secret"}}],
        "env": [
            {"name": "EARLY", "value": "$(LATE)"},
            {"name": "LATE", "value": "$(P_one)-$(password)"},
            {"name": "AFTER", "value": "$(LATE)!"},
            {"name": "P_two", "value": "own"},
            {"name": "EMPTY"},
            {"name": "UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        ],
    }
    variables = environment(container, GIVEN, {"PATH": "/bin", "P_one": "of the base"})
    assert variables == {
        "PATH": "/bin",
        "P_one": "1",
        "P_two": "own",
        "password": "pass",
        "broken": "",
        "EARLY": "$(LATE)",
        "LATE": "1-pass",
        "AFTER": "1-pass!",
        "EMPTY": "",
        "UID": "u-1",
    }


def test_references_do_not_see_variables_of_the_image() -> None:
    container = {"env": [{"name": "MINE", "value": "$(PATH)"}]}
    assert environment(container, GIVEN, {"PATH": "/bin"})["MINE"] == "$(PATH)"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMapKeyRef": {"name": "gone", "key": "k"}}, 'configmap "gone" not found'),
        ({"secretKeyRef": {"name": "none", "key": "k"}}, 'secret "none" not found'),
        ({"configMapKeyRef": {"name": "map", "key": "k"}}, "couldn't find key k in ConfigMap here/map"),
        ({"secretKeyRef": {"name": "secret", "key": "k"}}, "couldn't find key k in Secret here/secret"),
        ({"fieldRef": {"fieldPath": "spec.nonsense"}}, "unsupported fieldPath: spec.nonsense"),
    ],
)
def test_a_missing_reference_is_reported_with_the_kubelets_message(source: Json, message: str) -> None:
    with pytest.raises(Missing) as missing:
        environment({"env": [{"name": "X", "valueFrom": source}]}, GIVEN, {})
    assert (missing.value.reason, missing.value.message) == ("CreateContainerConfigError", message)


def test_optional_references_may_be_missing() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "gone", "optional": True}}],
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "secret", "key": "k", "optional": True}}}],
    }
    assert environment(container, GIVEN, {}) == {}


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, ["entry", "default"]),
        ({"args": ["own"]}, ["entry", "own"]),
        ({"command": ["c"]}, ["c"]),
        ({"command": ["c"], "args": ["$(A)"]}, ["c", "1"]),
        ({"command": ["c", "$$(A)", "$(B)"]}, ["c", "$(A)", "$(B)"]),
    ],
)
def test_a_command_replaces_entrypoint_and_arguments_of_the_image(container: Json, expected: list[str]) -> None:
    assert command_line(container, ["entry"], ["default"], {"A": "1"}) == expected


def test_every_reference_of_a_pod_is_found() -> None:
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("u", "v", "w")]
    spec = {
        "initContainers": [{"name": "i", "env": [{"valueFrom": {"secretKeyRef": {"name": "a"}}}]}],
        "containers": [{"name": "c", "envFrom": [{"configMapRef": {"name": "b"}}], "volumeMounts": mounts}],
        "volumes": [
            {"name": "u", "configMap": {"name": "c"}},
            {"name": "v", "secret": {"secretName": "d"}},
            {"name": "w", "projected": {"sources": [{"configMap": {"name": "e"}}, {"secret": {"name": "f"}}]}},
            {"name": "not-mounted", "configMap": {"name": "g"}},
        ],
    }
    read_references = {
        ("secret", "a"),
        ("configmap", "b"),
        ("configmap", "c"),
        ("secret", "d"),
        ("configmap", "e"),
        ("secret", "f"),
    }
    assert references({"spec": spec}) == read_references
    assert [(container["name"], init) for container, init in pod_containers({"spec": spec})] == [
        ("i", True),
        ("c", False),
    ]


SHELL = {
    "PATH": "/bin",
    "CUDA_VISIBLE_DEVICES": "1",
    "HIP_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "4",
    "HF_HOME": "/data/hf",
    "WANDB_API_KEY": "secret",
    "http_proxy": "http://proxy:3128",
    "LANG": "",
    "RANK": "3",
    "PYTHONPATH": "src",
    "MY_OWN": "x",
}


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"proxies": True}, set[str]()),
        ({"proxies": False}, {"http_proxy"}),
        ({"proxies": True, "personal": False}, {"HF_HOME", "WANDB_API_KEY"}),
    ],
)
def test_a_container_inherits_devices_and_threads_and_the_users_own_pods_caches_and_trackers(
    options: dict[str, bool], missing: set[str]
) -> None:
    """An empty CUDA_VISIBLE_DEVICES means that there is no device; other empty variables mean nothing."""
    env = inherited(SHELL, **options)
    assert env.keys() == SHELL.keys() - {"LANG", "RANK", "PYTHONPATH", "MY_OWN"} - missing
    assert env["HIP_VISIBLE_DEVICES"] == "" and env["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize(
    ("value", "files", "passed", "cpu_only"),
    [
        (None, ("null", "tty"), None, True),
        ("", ("null",), None, True),  # PaddlePaddle would believe in a GPU
        ("0", ("null",), None, True),
        ("0", ("null", "nvidia0", "nvidiactl"), "0", False),
        ("", ("nvidia0",), "", True),  # the user wants none
        ("-1", ("kfd", "dri"), "-1", True),
        (None, ("nvidia0",), None, False),
        ("0", ("dri", "null"), None, False),  # may be a GPU of Intel's
    ],
)
def test_libraries_learn_that_there_is_no_gpu(
    value: str | None, files: tuple[str, ...], passed: str | None, cpu_only: bool
) -> None:
    env = for_devices({"A": "b"} if value is None else {"A": "b", "CUDA_VISIBLE_DEVICES": value}, files)
    own = {"ACCELERATE_USE_CPU": "1", "PADDLE_DISTRI_BACKEND": "gloo"} if cpu_only else {}
    assert env == {"A": "b", **({} if passed is None else {"CUDA_VISIBLE_DEVICES": passed}), **own}


def test_elsewhere_than_on_linux_dev_does_not_say_that_there_is_no_gpu() -> None:
    assert for_devices({"A": "b"}, ("null", "tty"), "darwin") == {"A": "b"}
