"""The last values that the programs of a job have reported, from the metrics.jsonl files of its record."""

from __future__ import annotations

import math
from collections.abc import Iterable

from trainyard.app.history.records import HistoryRecord
from trainyard.app.job_files import read_bytes
from trainyard.objects import Json, name_of
from trainyard.objects.metric_points import METRICS, MetricPoint, decode_points, not_finite_since
from trainyard.views.recorded import pod_log_folder
from trainyard.views.replica_view import replica_view
from trainyard.views.usage_view import ReplicaUsage

MAX_FILES = 8  # replicas whose values are read


def recorded_usages(record: HistoryRecord, pods: Iterable[Json]) -> list[ReplicaUsage]:
    """The last values of at most MAX_FILES of these pods, without those that have reported none. Reads files."""
    usages = []
    for pod in pods:
        try:
            points = decode_points(read_bytes(record.logs / pod_log_folder(pod) / METRICS, record.logs))
        except OSError:
            continue
        if points:
            usages.append(_usage(pod, points))
        if len(usages) == MAX_FILES:
            break
    return usages


def _usage(pod: Json, points: list[MetricPoint]) -> ReplicaUsage:
    series: dict[str, list[MetricPoint]] = {}
    for point in points:
        series.setdefault(point.name, []).append(point)
    replica, last = replica_view(pod), {name: values[-1].value for name, values in series.items()}
    since = {name: not_finite_since(series[name]) for name, value in last.items() if not math.isfinite(value)}
    return ReplicaUsage(
        replica=replica.name,
        role=replica.role,
        state=replica.state,
        pod=name_of(pod),
        node=replica.node,
        metrics=last,
        metrics_source=points[-1].source,
        not_finite_since=since,
    )
