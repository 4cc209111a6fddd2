from __future__ import annotations

import pytest

from trainyard.node.devices.device import Device
from trainyard.node.devices.environment import device_environment
from trainyard.node.devices.visibility import visible

GPU, AMD = "nvidia.com/gpu", "amd.com/gpu"
A, B, C, D = (Device(GPU, f"GPU-{letter * 4}-{letter}", index) for index, letter in enumerate("abcd"))
M, N = (Device("nvidia.com/mig-1g.10gb", f"MIG-{letter * 4}", 1, gpu="GPU-bbbb-b") for letter in "mn")
X, Y = (Device(AMD, f"GPU-{index}{'0' * 15}", index) for index in (0, 1))

CUDA = [
    (None, "abcd"),
    ("", ""),
    ("-1", ""),
    ("0", "a"),
    ("2,0", "ac"),  # the order in which pods get them is that of the indices
    (" 1 , 3 ", "bd"),
    ("0,-1,1", "a"),
    ("1,1", "b"),
    ("GPU-cccc-c", "c"),
    ("GPU-c", "c"),
    ("GPU-", ""),  # the beginning of several
    ("GPU-dddd-d,0", "ad"),
    ("NoDevFiles", ""),
    ("MIG-aaaa", ""),
]


@pytest.mark.parametrize(("value", "letters"), CUDA)
def test_cuda_visible_devices_bounds_the_node(value: str | None, letters: str) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    devices = [A, B, C, D]
    assert visible(devices, environ).devices == tuple(devices["abcd".index(letter)] for letter in letters)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("MIG-nnnn", (N,)),
        ("MIG-mmmm,MIG-nnnn", (M, N)),
        ("1", (M,)),
        ("GPU-bbbb", (M,)),
        ("GPU-aaaa-a,MIG-nnnn", (A, N)),
        ("0", (A,)),
    ],
)
def test_mig_devices_are_named_by_their_uuid_or_by_the_gpu_of_the_first(
    value: str, expected: tuple[Device, ...]
) -> None:
    assert visible([A, M, N], {"CUDA_VISIBLE_DEVICES": value}).devices == expected


@pytest.mark.parametrize(
    ("value", "letters"),
    [
        ("all", "abcd"),
        ("void", "abcd"),
        ("", "abcd"),
        ("/var/run/nvidia-container-devices", "abcd"),
        ("none", ""),
        ("0,2", "ac"),
        ("GPU-bbbb-b", "b"),
        ("4,5,6,7", "abcd"),  # in a container that has four of its host's GPUs
        ("7", "abcd"),
    ],
)
def test_nvidia_visible_devices_bounds_the_node_unless_the_toolkit_has_done_it(value: str, letters: str) -> None:
    devices = [A, B, C, D]
    allowed = visible(devices, {"NVIDIA_VISIBLE_DEVICES": value}).devices
    assert allowed == tuple(devices["abcd".index(letter)] for letter in letters)


def test_both_variables_bound_the_node() -> None:
    assert visible([A, B, C], {"CUDA_VISIBLE_DEVICES": "0,1", "NVIDIA_VISIBLE_DEVICES": "1,2"}).devices == (B,)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (X, Y)),
        ({"ROCR_VISIBLE_DEVICES": "1"}, (Y,)),
        ({"ROCR_VISIBLE_DEVICES": X.uuid}, (X,)),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, (Y,)),
        ({"HIP_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "0"}, (X,)),  # HIP reads it when it has no variable of its own
        ({"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "1"}, (Y,)),
    ],
)
def test_variables_of_amd(environ: dict[str, str], expected: tuple[Device, ...]) -> None:
    assert visible([X, Y], environ).devices == expected


def test_an_entry_that_names_no_device_is_reported() -> None:
    (problem,) = visible([A, B], {"CUDA_VISIBLE_DEVICES": "0,7"}).problems
    assert problem == "CUDA_VISIBLE_DEVICES=0,7: there is no device 7; it and what follows it are ignored"
    assert (
        visible([A], {"CUDA_VISIBLE_DEVICES": ""}).problems
        == visible([A], {"CUDA_VISIBLE_DEVICES": "-1"}).problems
        == ()
    )
    assert visible([], {"CUDA_VISIBLE_DEVICES": "3"}).problems == ()


def test_a_container_sees_its_devices_by_uuid_in_the_order_of_nvidia_smi() -> None:
    assert device_environment([A, C], [A, B, C], {}) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-aaaa-a,GPU-cccc-c",
        "CUDA_VISIBLE_DEVICES": "GPU-aaaa-a,GPU-cccc-c",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def test_a_container_without_devices_sees_none() -> None:
    hidden = device_environment([], [A, X], {"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"})
    assert {name: value for name, value in hidden.items() if value} == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert hidden.keys() > {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}


def test_on_a_machine_without_devices_nothing_is_set() -> None:
    assert device_environment([], [], {"CUDA_VISIBLE_DEVICES": "0"}) == {}


@pytest.mark.parametrize(
    ("value", "uuids"), [("0", "GPU-cccc-c"), ("1,0", "GPU-dddd-d,GPU-cccc-c"), ("", ""), ("2", "")]
)
def test_the_spec_of_a_pod_selects_among_its_own_devices(value: str, uuids: str) -> None:
    """In a container of a cluster, index 0 is the first of its devices, not of the machine."""
    variables = device_environment([C, D], [A, B, C, D], {"CUDA_VISIBLE_DEVICES": value})
    assert variables["CUDA_VISIBLE_DEVICES"] == uuids
    assert variables["NVIDIA_VISIBLE_DEVICES"] == "GPU-cccc-c,GPU-dddd-d"


def test_a_container_with_a_gpu_of_amd_counts_from_zero() -> None:
    variables = device_environment([Y], [A, X, Y], {})
    assert variables["ROCR_VISIBLE_DEVICES"] == Y.uuid
    assert variables["HIP_VISIBLE_DEVICES"] == "0"
    assert variables["CUDA_VISIBLE_DEVICES"] == ""  # HIP does not read it: it has a variable of its own
