from __future__ import annotations

import pytest

from trainyard.objects import Json
from trainyard.objects.extended_resources import container_requests, container_shares, pod_requests

GPU = "nvidia.com/gpu"


def container(name: str, count: int = 0, **fields: object) -> Json:
    return {"name": name, **({"resources": {"limits": {GPU: count}}} if count else {}), **fields}


def pod(containers: list[Json], inits: list[Json] | None = None) -> Json:
    return {"spec": {"containers": containers, **({"initContainers": inits} if inits else {})}}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("resources", "counts"),
    [
        ({"limits": {GPU: 2}}, {GPU: 2}),
        ({"limits": {GPU: "2"}, "requests": {GPU: "2"}}, {GPU: 2}),
        ({"requests": {GPU: "1"}}, {GPU: 1}),
        ({"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}}, {GPU: 1}),
        ({"limits": {"alpha.kubernetes.io/nvidia-gpu": 1, GPU: 1}}, {GPU: 1}),
        ({"limits": {"nvidia.com/mig-1g.10gb": 2, "cpu": 4, "memory": "1Gi"}}, {"nvidia.com/mig-1g.10gb": 2}),
        ({"limits": {"hugepages-2Mi": "4Mi", "example.com/fpga": "3"}}, {"example.com/fpga": 3}),
        ({"limits": {GPU: 0}}, {}),
        ({"limits": {GPU: "many"}}, {}),
        ({"limits": {GPU: None}, "requests": None}, {}),
        ({"limits": ["x"]}, {}),
        ("x", {}),
        ({"limits": {GPU: "9" * 5000}}, {}),
        ({"limits": {GPU: "9" * 18}}, {GPU: 10**9}),
    ],
)
def test_a_container_requests_what_stands_in_its_limits_or_requests(resources: object, counts: object) -> None:
    assert container_requests({"name": "c", "resources": resources}) == counts


@pytest.mark.parametrize(
    ("what", "obj", "total"),
    [
        ("containers add up", pod([container("a", 2), container("b", 1), container("c")]), 3),
        ("an init container runs alone", pod([container("a", 1)], [container("i", 3), container("j", 2)]), 3),
        ("and before the containers", pod([container("a", 2)], [container("i", 1)]), 2),
        ("a sidecar runs beside the containers", pod([container("a", 2)], [container("s", 1, **SIDECAR)]), 3),
        (
            "an init container runs beside the sidecars before it",
            pod([container("a", 1)], [container("s", 1, **SIDECAR), container("i", 3)]),
            4,
        ),
        (
            "and not beside those after it",
            pod([container("a", 1)], [container("i", 3), container("s", 1, **SIDECAR)]),
            3,
        ),
        ("nothing", {"spec": None}, 0),
    ],
)
def test_a_pod_requests_what_kubernetes_counts(what: str, obj: Json, total: int) -> None:
    assert pod_requests(obj).get(GPU, 0) == total


def test_containers_and_sidecars_share_nothing_and_init_containers_use_what_is_not_a_sidecars() -> None:
    obj = pod(
        [container("a", 1), container("b", 1), container("none")],
        [container("s", 1, **SIDECAR), container("i", 2), container("t", 1, **SIDECAR)],
    )
    shares = container_shares(obj, {GPU: [0, 1, 2, 3]})
    assert {name: share.get(GPU, []) for name, share in shares.items()} == {
        "s": [0],
        "i": [1, 2],
        "t": [1],
        "a": [2],
        "b": [3],
        "none": [],
    }
    assert pod_requests(obj) == {GPU: 4}
