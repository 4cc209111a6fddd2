"""The metrics of jobs, by namespace and kind: how many there are, in which state, and what has happened to them.

Rules for this file:
- Counters count changes of the status that the operator's own watch shows. A job that an operator finds at its start
  is not counted again: the operator before it has counted that.
- The counters of Kubeflow's training-operator have their old names and labels beside ours (ALIASES), and the same
  values, so that dashboards and alerts of theirs go on.
- A namespace and kind has series while it has jobs (gauges), or since its first job (counters: rate() needs a sample
  of 0 before the first change) until its namespace has had no job for FORGET_SECONDS: namespaces come and go.
- The label is job_namespace: Prometheus itself adds a label `namespace` with that of the scraped pod.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple, get_args

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from trainyard.core import Kind
from trainyard.core.job_state import RestartCause
from trainyard.objects import (
    GVK,
    Json,
    as_dict,
    find_condition,
    is_condition_true,
    namespace_of,
    operator_status,
    parse_time,
    uid_of,
)
from trainyard.operator.operator import Operator

JOB_STATES = ("New", "Created", "Suspended", "Restarting", "Running", "Succeeded", "Failed")
QUEUE_STATES = ("due", "later", "held")
RUNNING_BUCKETS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 10800.0)
LABELS = ("job_namespace", "kind")
FORGET_SECONDS = 3600.0  # so that every scraper has seen the last changes of a namespace

COUNTERS = {
    "trainyard_jobs_created": "Jobs that the operator has accepted.",
    "trainyard_jobs_deleted": "Jobs that were deleted.",
    "trainyard_jobs_succeeded": "Jobs that have succeeded.",
    "trainyard_jobs_failed": "Jobs that have failed.",
}
RESTARTS = "trainyard_job_restarts"
"""The counter of restarts, which has a label `cause` in addition, of CAUSES."""
CAUSES: tuple[RestartCause, ...] = get_args(RestartCause)
ALIASES = {
    "trainyard_jobs_created": "training_operator_jobs_created",
    "trainyard_jobs_deleted": "training_operator_jobs_deleted",
    "trainyard_jobs_succeeded": "training_operator_jobs_successful",
    "trainyard_jobs_failed": "training_operator_jobs_failed",
    RESTARTS: "training_operator_jobs_restarted",
}
"""The counter of training-operator v1 with the same value, whose labels are job_namespace and framework. That of the
restarts has those with the cause `program`."""

_FRAMEWORKS = {"tf": "tensorflow", "mx": "mxnet", "elastic": "pytorch"}


def framework(gvk: GVK) -> str:
    """The `framework` label of training-operator: TFJob is "tensorflow", PyTorchJob "pytorch", MPIJob "mpi"."""
    name = gvk.kind.lower().removesuffix("job")
    return _FRAMEWORKS.get(name, name)


def job_state(job: Json) -> str:
    """The state of a job: the last of JOB_STATES whose condition is true, else "New"."""
    conditions = _conditions(job)
    return _last_state({state for state in JOB_STATES if is_condition_true(conditions, state)})


def _last_state(conditions: Container[str]) -> str:
    return next((state for state in reversed(JOB_STATES) if state in conditions), "New")


class _Series(NamedTuple):
    """The series of one namespace and kind: of each of COUNTERS its own and its alias, and the time to running.
    `restarts`: those of RESTARTS by cause, `program` with the alias."""

    counters: dict[str, tuple[PrometheusCounter, PrometheusCounter]]
    restarts: dict[RestartCause, tuple[PrometheusCounter, ...]]
    running: Histogram


class JobMetrics:
    """Counts the changes of jobs (`observe_change`), and computes the gauges of jobs at each scrape (`collect`).
    `clock` returns monotonic seconds."""

    def __init__(
        self, registry: CollectorRegistry, kinds: Iterable[Kind], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._kinds = tuple(kinds)
        self._counters = {
            name: PrometheusCounter(name, text, LABELS, registry=registry) for name, text in COUNTERS.items()
        }
        self._restarts = PrometheusCounter(
            RESTARTS,
            "Restarts of replicas, by cause. Those of the cause `program` are counted as in status.restarts.",
            (*LABELS, "cause"),
            registry=registry,
        )
        self._aliases = {
            name: PrometheusCounter(
                alias, f"The same as {name}_total.", ("job_namespace", "framework"), registry=registry
            )
            for name, alias in ALIASES.items()
        }
        self._running = Histogram(
            "trainyard_job_time_to_running_seconds",
            "Seconds from the start of a job until it runs for the first time.",
            LABELS,
            buckets=RUNNING_BUCKETS,
            registry=registry,
        )
        # Kept, as their labels take most of the time of a count.
        self._series: dict[str, dict[GVK, _Series]] = {}  # by namespace and kind
        self._last_used: dict[str, float] = {}  # by namespace: when it last had a job

    def observe_change(self, gvk: GVK, before: Json | None, after: Json | None) -> None:
        """Count what has changed from `before` to `after`: two versions of one job, None where it does not exist. Two
        jobs with one name are one that was deleted and one that is new."""
        namespace = namespace_of(after or before or {})
        deleted = before is not None and (after is None or uid_of(after) != uid_of(before))
        self._last_used[namespace] = self._clock()
        by_kind = self._series.setdefault(namespace, {})
        series = by_kind[gvk] = by_kind.get(gvk) or self._make_series(namespace, gvk)
        amounts = {"trainyard_jobs_deleted": int(deleted)}
        if before is not None and after is not None and not deleted:
            amounts["trainyard_jobs_created"] = int(job_state(before) == "New" != job_state(after))
            amounts["trainyard_jobs_succeeded"] = int(_became_true("Succeeded", before, after))
            amounts["trainyard_jobs_failed"] = int(_became_true("Failed", before, after))
            restarts, earlier = _restarts(after), _restarts(before)
            for cause, counters in series.restarts.items():
                for counter in counters if restarts[cause] > earlier[cause] else ():
                    counter.inc(restarts[cause] - earlier[cause])
            seconds = _seconds_to_running(after)
            if seconds is not None and _has_run(after) and not _has_run(before):
                series.running.observe(seconds)
        for name, amount in amounts.items():
            if amount:
                for counter in series.counters[name]:
                    counter.inc(amount)

    def _make_series(self, namespace: str, gvk: GVK) -> _Series:
        return _Series(
            {
                name: (
                    counter.labels(namespace, gvk.kind),
                    self._aliases[name].labels(namespace, framework(gvk)),
                )
                for name, counter in self._counters.items()
            },
            {
                cause: (
                    self._restarts.labels(namespace, gvk.kind, cause),
                    *([self._aliases[RESTARTS].labels(namespace, framework(gvk))] if cause == "program" else []),
                )
                for cause in CAUSES
            },
            self._running.labels(namespace, gvk.kind),
        )

    def _forget_namespaces(self, used: Iterable[str]) -> None:
        """Remove the series of the namespaces that have had no job for FORGET_SECONDS. `used`: those that have some."""
        now = self._clock()
        self._last_used |= dict.fromkeys(used, now)
        for namespace in [name for name, last in self._last_used.items() if now - last > FORGET_SECONDS]:
            del self._last_used[namespace]
            labels = {"job_namespace": namespace}
            for metric in (*self._counters.values(), self._restarts, *self._aliases.values(), self._running):
                metric.remove_by_labels(labels)
            self._series.pop(namespace, None)

    def collect(self, operator: Operator) -> Iterator[Metric]:
        """The gauges of the operator's jobs and of its work queue."""
        jobs: Counter[tuple[str, str, str]] = Counter()
        blocked: Counter[tuple[str, str, str]] = Counter()
        for kind in self._kinds:
            for job in operator.jobs(kind.gvk):
                labels, reasons = (job.namespace, kind.gvk.kind), dict(job.conditions)
                jobs[*labels, _last_state(reasons)] += 1
                if "Blocked" in reasons:
                    blocked[*labels, reasons["Blocked"]] += 1
        pairs = sorted({(namespace, kind) for namespace, kind, _ in jobs})
        self._forget_namespaces({namespace for namespace, _ in pairs})
        queue = Counter((key.namespace, key.gvk.kind, state) for key, state in operator.queue.states())
        yield _gauge("trainyard_jobs", "Jobs, by state.", "state", jobs, pairs, JOB_STATES)
        yield _gauge("trainyard_jobs_blocked", "Jobs with condition Blocked, by its reason.", "reason", blocked)
        text = "Jobs due for a reconcile, waiting for a later time, or held by a worker."
        yield _gauge("trainyard_queue_depth", text, "state", queue, pairs, QUEUE_STATES)


def _gauge(
    name: str,
    text: str,
    label: str,
    counts: Counter[tuple[str, str, str]],
    pairs: Iterable[tuple[str, str]] = (),
    values: Iterable[str] = (),
) -> Metric:
    """A gauge with job_namespace, kind and `label`; for each of the pairs it has a sample for each of the values."""
    gauge = GaugeMetricFamily(name, text, labels=[*LABELS, label])
    zeros = dict.fromkeys(((*pair, value) for pair in pairs for value in values), 0)
    for labels, count in {**zeros, **counts}.items():
        gauge.add_metric(labels, count)
    return gauge


def _conditions(job: Json) -> object:
    return operator_status(job).get("conditions")


def _became_true(condition_type: str, before: Json, after: Json) -> bool:
    return is_condition_true(_conditions(after), condition_type) and not is_condition_true(
        _conditions(before), condition_type
    )


def _restarts(job: Json) -> dict[RestartCause, int]:
    status = operator_status(job)
    counts = {**as_dict(status.get("restartCauses")), "program": status.get("restarts")}
    return {cause: count if isinstance(count := counts.get(cause), int) else 0 for cause in CAUSES}


def _has_run(job: Json) -> bool:
    return operator_status(job).get("hasRun") is True


def _seconds_to_running(job: Json) -> float | None:
    """Seconds from `startTime` to the transition of condition Running, None when one of them is unknown."""
    running = find_condition(_conditions(job), "Running") or {}
    started = parse_time(operator_status(job).get("startTime"))
    transition = parse_time(running.get("lastTransitionTime"))
    return None if started is None or transition is None else max(0.0, transition - started)
