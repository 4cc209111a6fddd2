"""The peak of the memory of a run that has ended: in `why`, in `describe` and in the history."""

from __future__ import annotations

from typing import Any

import pytest

from tests.views.why_values import RUNNING, pod, tfjob
from trainyard import kinds
from trainyard.cli.describe import _replicas
from trainyard.objects import Json
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.usage import PEAK_MEMORY, peak_annotation, peaks_of
from trainyard.views.diagnosis import Facts, why
from trainyard.views.diagnosis.containers import memory_lines
from trainyard.views.job_details import job_details
from trainyard.views.memory import format_bytes, memory_peak
from trainyard.views.recorded import pod_entry, recorded_pod

NOW = 1_700_000_000.0
MIB = 1 << 20
FAILED = ("Failed", "JobFailed", "worker-0 failed")


def ended(code: int, reason: str = "Error") -> Json:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2023-11-14T22:13:00Z"}}


def with_peak(status: Json, peaks: dict[str, int], limit: str = "", phase: str = "Failed") -> Json:
    peak_pod = pod("WORKER-0", status, phase, annotations=peak_annotation(peaks))
    if limit:
        peak_pod["spec"]["containers"][0]["resources"] = {"limits": {"memory": limit}}
    return peak_pod


def evidence(peak_pod: Json, *conditions: tuple[str, str, str], lines: tuple[str, ...] = ()) -> tuple[str, ...]:
    kind = next(kind for kind in kinds.ALL if kind.gvk.kind == "TfJob")
    facts = Facts(kind, tfjob(*conditions), NOW, pods=(peak_pod,), logs={("p-WORKER-0", "tensorflow"): lines})
    return tuple(line for finding in why(facts) for line in finding.evidence)


@pytest.mark.parametrize(
    ("code", "reason", "lines", "limit", "line"),
    [
        (137, "OOMKilled", (), "2Gi", "memory: peak 1.9 GiB, limit 2Gi"),
        (137, "Error", ("step 3",), "", "memory: peak 1.9 GiB, no limit"),
        (1, "Error", ("Traceback (most recent call last):", "MemoryError"), "", "memory: peak 1.9 GiB, no limit"),
        (1, "Error", ("what():  std::bad_alloc",), "2Gi", "memory: peak 1.9 GiB, limit 2Gi"),
    ],
)
def test_why_names_the_peak_of_a_run_that_ran_out_of_memory(
    code: int, reason: str, lines: tuple[str, ...], limit: str, line: str
) -> None:
    peak_pod = with_peak({"restartCount": 0, "state": ended(code, reason)}, {"tensorflow/1": 1946 * MIB}, limit)
    assert evidence(peak_pod, FAILED, lines=lines)[-1] == line


@pytest.mark.parametrize(
    ("code", "peaks"), [(1, {"tensorflow/1": MIB}), (137, {}), (137, {"tensorflow/2": MIB, "other/1": MIB})]
)
def test_why_names_no_peak_that_says_nothing_or_is_that_of_another_run(code: int, peaks: dict[str, int]) -> None:
    peak_pod = with_peak({"restartCount": 0, "state": ended(code)}, peaks)
    assert not [line for line in evidence(peak_pod, FAILED, lines=("step 3",)) if line.startswith("memory")]


def test_why_names_the_peak_of_the_run_before_a_restart() -> None:
    peaks = {"tensorflow/1": 100 * MIB, "tensorflow/2": 300 * MIB}
    waits = {"waiting": {"reason": "CrashLoopBackOff"}}
    looping = {"restartCount": 1, "state": waits, "lastState": ended(137, "OOMKilled")}
    assert evidence(with_peak(looping, peaks, "300Mi", "Running"), RUNNING)[-1] == "memory: peak 300 MiB, limit 300Mi"
    again = {"restartCount": 2, "state": {"running": {}}, "lastState": ended(137, "OOMKilled")}
    assert "memory: peak 300 MiB, limit 300Mi" in evidence(with_peak(again, peaks, "300Mi", "Running"), RUNNING)


def test_describe_has_a_column_with_the_peak_where_there_is_one() -> None:
    peak_pod = with_peak({"restartCount": 0, "state": ended(137)}, {"tensorflow/1": 300 * MIB}, "400Mi")
    table = _replicas(job_details(tfjob(RUNNING), [peak_pod], [], [], NOW), NOW)
    assert [row[-2] for row in table] == ["PEAK", "300 MiB of 400Mi"]
    without = with_peak({"restartCount": 0, "state": ended(137)}, {})
    assert "PEAK" not in _replicas(job_details(tfjob(RUNNING), [without], [], [], NOW), NOW)[0]


def test_the_history_keeps_the_peak_of_each_run() -> None:
    first = with_peak(
        {"restartCount": 0, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ended(137)},
        {"tensorflow/1": 100 * MIB},
        phase="Running",
    )
    second = with_peak({"restartCount": 1, "state": ended(137)}, {"tensorflow/2": 300 * MIB})
    entry = pod_entry(second, pod_entry(first))
    assert [run["peakMemory"] for run in entry["containers"][0]["runs"]] == [100 * MIB, 300 * MIB]
    again = recorded_pod({"uid": "u", "namespace": "default"}, entry)
    (container,) = container_statuses(again["status"])
    assert memory_peak(again, container).size == 300 * MIB
    assert "peakMemory" not in str(pod_entry(pod("WORKER-0", {"restartCount": 0, "state": ended(1)}, "Failed")))


@pytest.mark.parametrize("value", ["", "nonsense", "[]", "3", '{"a/1": "x"}', '{"a/1": true}', "null"])
def test_an_annotation_that_is_none_of_ours_has_no_peaks(value: Any) -> None:
    assert peaks_of({PEAK_MEMORY: value}) == {}


@pytest.mark.parametrize(
    ("size", "text"), [(12, "12 B"), (200 << 10, "200 KiB"), (200 << 20, "200 MiB"), (3.4 * (1 << 30), "3.4 GiB")]
)
def test_sizes(size: float, text: str) -> None:
    assert format_bytes(size) == text


def test_the_peak_on_gpus_is_kept_and_shown_after_an_out_of_memory() -> None:
    lines = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",)
    annotations = {"trainyard.dev/peak-device-memory": '{"tensorflow/1":23622320128}'}
    failed = pod("MASTER-0", {"state": ended(1)}, "Failed", annotations=annotations)
    (status,) = container_statuses(failed["status"])
    assert memory_lines(failed, status, 1, lines) == ("memory on GPUs: peak 22.0 GiB",)
    assert memory_lines(failed, status, 1, ("KeyError: 'rate'",)) == ()
    entry = pod_entry(failed)
    assert entry["containers"][0]["runs"][0]["peakDeviceMemory"] == 22 << 30
    assert recorded_pod({}, entry)["metadata"]["annotations"] == annotations
