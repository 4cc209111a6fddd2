"""The usage of replicas and jobs: sums, the order, and what is unknown."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest

from tests.views.why_values import RUNNING, pod, tfjob
from trainyard.objects import Json
from trainyard.objects.usage import MEMORY_MEASURE, Progress, peak_annotation
from trainyard.views.job_row import job_row
from trainyard.views.job_view import JobView
from trainyard.views.usage_view import ReplicaUsage, Spread, by_pod, job_usage, replica_usages, spreads

NOW = 1_700_000_000.0
MIB = 1 << 20


def metrics(slot: str, cpu: str = "0", memory: str = "0", step: float | None = None, **annotations: str) -> Json:
    progress = Progress({"step": step, "loss": 0.5}, 2.5, "file").annotation if step is not None else {}
    annotations |= {MEMORY_MEASURE: "PSS"} | progress
    meta = {"name": f"{slot.lower()}-abcd-x", "namespace": "default", "annotations": annotations}
    return {"metadata": meta, "containers": [{"name": "tensorflow", "usage": {"cpu": cpu, "memory": memory}}]}


def usages(pods: list[Json], *items: Json) -> list[ReplicaUsage]:
    view = JobView.of([tfjob(RUNNING)], pods, NOW)
    return replica_usages("default", view.slots("u"), by_pod(items))


def test_a_replica_has_the_sums_of_its_containers_and_its_progress() -> None:
    item = metrics("WORKER-0", "1500m", "2Gi", 10, **peak_annotation({"tensorflow/1": 5 * MIB, "side/1": MIB}))
    item["containers"].append({"name": "side", "usage": {"cpu": "250000000n", "memory": "1024Ki"}})
    (usage,) = usages([pod("WORKER-0")], item)
    assert msgspec.to_builtins(usage) == {
        "replica": "worker-0",
        "role": "worker",
        "state": "Running",
        "pod": "worker-0-abcd-x",
        "node": "here",
        "step": 10.0,
        "stepsPerSecond": 2.5,
        "cpu": 1.75,
        "memory": 2049 * MIB,
        "peakMemory": 6 * MIB,
        "peakDeviceMemory": None,
        "deviceMemory": None,
        "deviceUtilization": None,
        "memoryMeasure": "PSS",
        "metrics": {"step": 10.0, "loss": 0.5},
        "metricsSource": "file",
        "notFiniteSince": {},
        "lag": 0.0,
        "stoppedPid": 0,
        "stepTime": None,
        "secondsPerStep": None,
        "waitsFor": "",
        "waitingPid": 0,
    }


def test_a_value_that_is_not_finite_is_shown_as_such() -> None:
    item = metrics("WORKER-0", step=30)
    progress = Progress(
        {"step": 30.0, "loss": math.nan, "scale": -math.inf}, None, "file", {"loss": 21.0, "scale": None}
    )
    item["metadata"]["annotations"] |= progress.annotation
    (usage,) = usages([pod("WORKER-0")], item)
    shown = json.loads(json.dumps(usage.to_json(), allow_nan=False))
    assert shown["metrics"] == {"step": 30.0, "loss": "nan", "scale": "-inf"}
    assert shown["notFiniteSince"] == {"loss": 21.0, "scale": None}


def test_a_replica_has_the_time_of_its_last_step_and_what_its_process_waits_for() -> None:
    item = metrics("WORKER-0")
    annotations = item["metadata"]["annotations"]
    annotations |= Progress({"step": 3.0}, 0.0, "file", {}, NOW, 0.1).annotation
    annotations["trainyard.dev/waiting-process"] = "sleep 4711"
    (usage,) = usages([pod("WORKER-0")], item)
    assert (usage.step_time, usage.seconds_per_step, usage.waits_for, usage.waiting_pid) == (NOW, 0.1, "sleep", 4711)


def test_what_metrics_server_does_not_know_is_unknown() -> None:
    item: Json = {"metadata": {"name": "worker-0-abcd-x", "namespace": "default"}}
    item["containers"] = [{"name": "tensorflow", "usage": {"cpu": "1", "memory": "1Mi"}}]
    (usage,) = usages([pod("WORKER-0")], item)
    assert (usage.cpu, usage.memory, usage.peak_memory, usage.step, usage.memory_measure) == (1.0, MIB, None, None, "")
    (usage,) = usages([pod("WORKER-0")])
    assert (usage.cpu, usage.memory) == (None, None)


def test_a_replica_that_has_ended_has_the_peak_of_its_last_run() -> None:
    ended: Json = {"restartCount": 0, "state": {"terminated": {"exitCode": 137}}}
    (usage,) = usages([pod("WORKER-0", ended, "Failed", annotations=peak_annotation({"tensorflow/1": MIB}))])
    assert (usage.state, usage.peak_memory, usage.cpu) == ("Failed", MIB, None)


@pytest.mark.parametrize(
    ("items", "order"),
    [
        (
            (("WORKER-0", "10m", "1Mi", 100), ("WORKER-1", "900m", "1Mi", 100), ("WORKER-2", "20m", "1Mi", 40)),
            ["worker-2", "worker-1", "worker-0"],
        ),
        (
            (("WORKER-0", "10m", "1Mi", 100), ("WORKER-1", "10m", "1Mi", 100), ("WORKER-2", "0", "0", None)),
            ["worker-2", "worker-0", "worker-1"],
        ),
        (
            (("WORKER-0", "10m", "1Mi", 100), ("PS-0", "500m", "1Mi", None), ("WORKER-1", "10m", "2Mi", 100)),
            ["ps-0", "worker-1", "worker-0"],
        ),
        ((("WORKER-0", "0", "0", None), ("WORKER-10", "0", "0", None), ("WORKER-2", "0", "0", None)), None),
    ],
)
def test_the_order_is_by_lag_then_by_usage(items: Any, order: list[str] | None) -> None:
    rows = usages([pod(item[0]) for item in items], *(metrics(*item) for item in items))
    assert [usage.replica for usage in rows] == (order or ["worker-0", "worker-2", "worker-10"])


def test_a_replica_that_has_ended_well_does_not_lag() -> None:
    done = pod("WORKER-1", {"restartCount": 0, "state": {"terminated": {"exitCode": 0}}}, "Succeeded")
    rows = usages([pod("WORKER-0"), done], metrics("WORKER-0", step=100))
    assert [(usage.replica, usage.lag) for usage in rows] == [("worker-0", 0.0), ("worker-1", 0.0)]


def test_a_job_has_sums_the_largest_peak_and_the_median_step() -> None:
    view = JobView.of([tfjob(RUNNING)], [pod("WORKER-0"), pod("WORKER-1"), pod("PS-0")], NOW)
    items = (
        metrics("WORKER-0", "1", "3Mi", 10, **peak_annotation({"tensorflow/1": 9 * MIB})),
        metrics("WORKER-1", "500m", "1Mi", 20, **peak_annotation({"tensorflow/1": 7 * MIB})),
    )
    rows = replica_usages("default", view.slots("u"), by_pod(items))
    usage = job_usage(job_row(view, "u"), rows)
    assert (usage.step, usage.steps_per_second, usage.cpu, usage.memory) == (15.0, 2.5, 1.5, 4 * MIB)
    assert (usage.peak_memory, usage.running, usage.replicas) == (9 * MIB, 2, 3)
    nothing = job_usage(job_row(view, "u"), [])
    assert (nothing.step, nothing.cpu, nothing.memory, nothing.peak_memory) == (None, None, None, None)


def test_the_spread_of_replicas_leaves_out_what_is_unknown() -> None:
    rows = usages(
        [pod(f"WORKER-{n}") for n in range(3)], metrics("WORKER-0", "1", "1Mi"), metrics("WORKER-1", "2", "3Mi")
    )
    assert spreads(rows) == {"cpu": Spread(1.0, 1.5, 2.0), "memory": Spread(MIB, 2 * MIB, 3 * MIB)}
    assert spreads([]) == {}
