"""The Prometheus metrics of the operator.

Rules for this file:
- The set of label values is bounded: kinds, resources, verbs, codes, outcomes, states and lines of the program; never a
  job's name. The metrics of jobs (job_metrics.py) have its namespace. The standby metric names a Lease and its holder,
  which the administrator controls.
- Counters and histograms are updated by each reconcile and request; gauges (queue, watches, jobs) are computed at each
  scrape.
- This package's `__init__` does not import this file: a local cluster runs without prometheus_client.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from trainyard import __version__
from trainyard.client import ApiRequest, request_info
from trainyard.core import Kind
from trainyard.operator.job_metrics import JobMetrics
from trainyard.operator.operator import JobKey, Operator

DURATION_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
OUTCOMES = ("done", "conflict", "unavailable", "refused", "fault", "abandoned")
WATCH_STATES = ("listing", "watching", "failing", "missing")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics registry: of API requests, and of the operator that `observe_operator` got last."""

    def __init__(
        self, kinds: Iterable[Kind], is_leader: Callable[[], bool], standby_for: Callable[[], str] = lambda: ""
    ) -> None:
        """`is_leader` returns whether this process leads. `standby_for` returns "LEASE held by HOLDER" while this
        process waits for a lease, else ""."""
        disable_created_metrics()  # type: ignore[no-untyped-call]  # they double the number of series
        self._kinds = tuple(kinds)
        self.registry = registry = CollectorRegistry(auto_describe=False)
        reconciles = ("trainyard_reconcile", "Reconciles of jobs, by outcome.")
        self._reconciles = PrometheusCounter(*reconciles, ["kind", "outcome"], registry=registry)
        self._reconcile_durations = Histogram(
            "trainyard_reconcile_duration_seconds",
            "Seconds of a reconcile, its requests included.",
            ["kind", "outcome"],
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self._requests = PrometheusCounter(
            "trainyard_api_requests",
            "Requests to the API server; the code is 'none' without a response.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self._request_durations = Histogram(
            "trainyard_api_request_duration_seconds",
            "Seconds until a response was complete; of a watch, until it began.",
            ["verb"],
            buckets=DURATION_BUCKETS,
            registry=registry,
        )
        self.config_reloads = PrometheusCounter(
            "trainyard_config_reloads", "Reloads of the controller config file.", ["outcome"], registry=registry
        )
        # The series by their labels, of which there are few: `labels` takes most of the time of an observation.
        self._request_series, self._reconcile_series = cache(self._find_request), cache(self._find_reconcile)
        self._jobs = JobMetrics(registry, self._kinds)
        self._state_collector = _StateCollector(self._kinds, self._jobs, is_leader, standby_for)
        registry.register(self._state_collector)
        ProcessCollector(registry=registry)
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """rate() needs a sample of 0 before the first reconcile."""
        for kind in self._kinds:
            for outcome in OUTCOMES:
                self._reconciles.labels(kind.gvk.kind, outcome)
        for outcome in ("used", "refused"):
            self.config_reloads.labels(outcome)

    def _find_request(self, verb: str, resource: str, code: int) -> tuple[PrometheusCounter, Histogram]:
        code_label = str(code) if code else "none"
        return self._requests.labels(verb, resource, code_label), self._request_durations.labels(verb)

    def _find_reconcile(self, kind: str, outcome: str) -> tuple[PrometheusCounter, Histogram]:
        return self._reconciles.labels(kind, outcome), self._reconcile_durations.labels(kind, outcome)

    def observe_operator(self, operator: Operator | None) -> None:
        """Show the metrics of this operator from now on; None: of no operator."""
        self._state_collector.operator = operator
        if operator is not None:
            operator.set_reconcile_callback(self._observe_reconcile)
            operator.on_job_changed = self._jobs.observe_change

    def observe_stalls(self, longest_stall: Callable[[], tuple[float, str]]) -> None:
        """`longest_stall` returns the seconds of the longest stall of the event loop in the last minute, and where it
        was."""
        self._state_collector.longest_stall = longest_stall

    def observe_request(self, request: ApiRequest, code: int, seconds: float) -> None:
        """Count a request, its status code (0: no answer) and its latency in seconds. To be set as an ApiClient's
        `on_response`."""
        count, durations = self._request_series(*request_info(request), code)
        count.inc()
        durations.observe(seconds)

    def render(self) -> bytes:
        """The metrics in the Prometheus text format, as `/metrics` returns them."""
        return generate_latest(self.registry)

    def _observe_reconcile(self, job_key: JobKey, outcome: str, seconds: float) -> None:
        count, durations = self._reconcile_series(job_key.gvk.kind, outcome)
        count.inc()
        durations.observe(seconds)


class _StateCollector(Collector):
    """The metrics that are computed at each scrape."""

    def __init__(
        self, kinds: tuple[Kind, ...], jobs: JobMetrics, leads: Callable[[], bool], standby: Callable[[], str]
    ) -> None:
        self.operator: Operator | None = None
        self._kinds = kinds
        self._jobs = jobs
        self._leads = leads
        self._standby = standby
        self.longest_stall: Callable[[], tuple[float, str]] = lambda: (0.0, "")

    def collect(self) -> Iterator[Metric]:
        build_info = {"version": __version__, "python": platform.python_version()}
        yield InfoMetricFamily("trainyard_build", "The version of the operator.", value=build_info)
        yield GaugeMetricFamily("trainyard_leader", "1 while this operator leads, 0 while it stands by.", self._leads())
        lease, _, holder = self._standby().partition(" held by ")
        help_text = "The lease that this operator waits for, and who holds it."
        yield InfoMetricFamily(
            "trainyard_standby", help_text, value={"lease": lease, "holder": holder} if lease else None
        )
        seconds, where = self.longest_stall()
        help_text = "The longest time of the last minute in which the event loop did one thing alone, and where."
        stall = GaugeMetricFamily("trainyard_event_loop_longest_stall_seconds", help_text, labels=["where"])
        stall.add_metric([where], seconds)
        yield stall
        if self.operator is not None:
            help_text = "Events of jobs that were not recorded."
            yield CounterMetricFamily("trainyard_events_dropped", help_text, self.operator.dropped_events)
            yield self._served(self.operator)
            yield from self._watches(self.operator)
            yield from self._jobs.collect(self.operator)

    def _served(self, operator: Operator) -> Metric:
        help_text = "1 if the jobs of the kind are served, 0 beside a controller of another project."
        served = GaugeMetricFamily("trainyard_kind_served", help_text, labels=["group", "kind"])
        for kind in self._kinds:
            served.add_metric([kind.gvk.group, kind.gvk.kind], operator.held.reason(kind.gvk) is None)
        return served

    def _watches(self, operator: Operator) -> Iterator[Metric]:
        labels = ["group", "resource"]
        states = GaugeMetricFamily("trainyard_watch_state", "1 for the state of a watch.", labels=[*labels, "state"])
        objects = GaugeMetricFamily("trainyard_watch_objects", "Objects in the store of a watch.", labels=labels)
        for watch in operator.watches:
            label_values = [watch.gvk.group, watch.gvk.plural]
            objects.add_metric(label_values, watch.object_count)
            for state in WATCH_STATES:
                states.add_metric([*label_values, state], watch.state == state)
        yield states
        yield objects
