"""What watches the operator: alert rules, a Grafana dashboard, a PodMonitor. `make manifests` writes them into files.

Rules for this file:
- Every metric, label and label value is one of the operator: a test compares with a scrape of a running operator.
- Every alert has a section of its name in docs/runbook.md.
- The names of Kubernetes' own metrics (kube-state-metrics, cadvisor) are not used: not every cluster has them.
"""

from __future__ import annotations

from typing import NamedTuple

from trainyard.objects import Json

RUNBOOK = "docs/runbook.md"
JOBS = "job_namespace, kind"
_CHOSEN = 'job_namespace=~"$namespace",kind=~"$kind"'


class Alert(NamedTuple):
    """One alert rule. `wait`: how long `expr` must hold."""

    name: str
    expr: str
    wait: str
    severity: str
    summary: str

    def rule(self, runbook: str = RUNBOOK) -> Json:
        """The alert as a rule of Prometheus. `runbook`: address of the runbook."""
        return {
            "alert": self.name,
            "expr": self.expr,
            "for": self.wait,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook_url": f"{runbook}#{self.name.lower()}"},
        }


ALERTS = (
    Alert(
        "TrainyardOperatorNotLeading",
        "absent(trainyard_leader == 1)",
        "5m",
        "critical",
        "No operator reconciles jobs: none runs, or all are on standby.",
    ),
    Alert(
        "TrainyardWatchFailing",
        'max by (group, resource) (trainyard_watch_state{state="failing"}) == 1',
        "5m",
        "critical",
        "The operator cannot list or watch {{ $labels.resource }}.{{ $labels.group }}: it works with old objects.",
    ),
    Alert(
        "TrainyardReconcileRefused",
        'sum by (kind) (rate(trainyard_reconcile_total{outcome="refused"}[10m])) > 0',
        "15m",
        "warning",
        "The API server refuses requests for jobs of kind {{ $labels.kind }}.",
    ),
    Alert(
        "TrainyardReconcileFault",
        'sum by (kind) (increase(trainyard_reconcile_total{outcome="fault"}[15m])) > 0',
        "0m",
        "critical",
        "A bug in the operator: a reconcile of kind {{ $labels.kind }} has raised an exception.",
    ),
    Alert(
        "TrainyardAPIServerUnavailable",
        'sum(rate(trainyard_reconcile_total{outcome="unavailable"}[5m])) > 0',
        "10m",
        "warning",
        "The API server does not answer, or is overloaded.",
    ),
    Alert(
        "TrainyardQueueBacklog",
        'sum(trainyard_queue_depth{state="due"}) > 100',
        "10m",
        "warning",
        "{{ $value }} jobs wait for a reconcile.",
    ),
    Alert(
        "TrainyardConfigRefused",
        'increase(trainyard_config_reloads_total{outcome="refused"}[15m]) > 0',
        "0m",
        "warning",
        "The changed controller config is invalid: the operator works with the one before it.",
    ),
    Alert(
        "TrainyardJobsBlocked",
        f"sum by ({JOBS}, reason) (trainyard_jobs_blocked) > 0",
        "15m",
        "warning",
        "{{ $value }} jobs ({{ $labels.kind }}) in {{ $labels.job_namespace }} are blocked: {{ $labels.reason }}.",
    ),
    Alert(
        "TrainyardJobsRestarting",
        f'sum by ({JOBS}) (increase(trainyard_job_restarts_total{{cause=~"program|stall"}}[1h])) > 10',
        "5m",
        "warning",
        "Replicas of kind {{ $labels.kind }} in {{ $labels.job_namespace }} fail and restart again and again.",
    ),
    Alert(
        "TrainyardJobsSlowToRun",
        f"histogram_quantile(0.9, sum by ({JOBS}, le) (rate(trainyard_job_time_to_running_seconds_bucket[1h]))) > 1800",
        "15m",
        "info",
        "Jobs of kind {{ $labels.kind }} in {{ $labels.job_namespace }} need more than half an hour until they run.",
    ),
)


class Panel(NamedTuple):
    """One graph. `queries`: legend -> PromQL."""

    title: str
    queries: dict[str, str]
    unit: str = "short"
    stack: bool = False


PANELS = (
    Panel("Jobs by state", {"{{state}}": f"sum by (state) (trainyard_jobs{{{_CHOSEN}}})"}, stack=True),
    Panel(
        "Blocked jobs",
        {"{{job_namespace}} {{kind}} {{reason}}": f"sum by ({JOBS}, reason) (trainyard_jobs_blocked{{{_CHOSEN}}})"},
        stack=True,
    ),
    Panel(
        "Ended jobs per hour",
        {
            "succeeded": f"sum(increase(trainyard_jobs_succeeded_total{{{_CHOSEN}}}[1h]))",
            "failed": f"sum(increase(trainyard_jobs_failed_total{{{_CHOSEN}}}[1h]))",
            "created": f"sum(increase(trainyard_jobs_created_total{{{_CHOSEN}}}[1h]))",
            "deleted": f"sum(increase(trainyard_jobs_deleted_total{{{_CHOSEN}}}[1h]))",
        },
    ),
    Panel(
        "Restarts per hour",
        {
            "{{job_namespace}} {{kind}} {{cause}}": (
                f"sum by ({JOBS}, cause) (increase(trainyard_job_restarts_total{{{_CHOSEN}}}[1h]))"
            )
        },
        stack=True,
    ),
    Panel(
        "Time to running",
        {
            f"p{quantile}": f"histogram_quantile(0.{quantile}, "
            f"sum by (le) (rate(trainyard_job_time_to_running_seconds_bucket{{{_CHOSEN}}}[$__rate_interval])))"
            for quantile in (50, 90, 99)
        },
        unit="s",
    ),
    Panel(
        "Work queue",
        {"{{state}}": f"sum by (state) (trainyard_queue_depth{{{_CHOSEN}}})"},
    ),
    Panel(
        "Reconciles per second",
        {"{{kind}} {{outcome}}": "sum by (kind, outcome) (rate(trainyard_reconcile_total[$__rate_interval]))"},
        unit="reqps",
    ),
    Panel(
        "Duration of a reconcile, p99",
        {
            "{{kind}}": "histogram_quantile(0.99, "
            "sum by (kind, le) (rate(trainyard_reconcile_duration_seconds_bucket[$__rate_interval])))"
        },
        unit="s",
    ),
    Panel(
        "Requests to the API server",
        {"{{verb}} {{code}}": "sum by (verb, code) (rate(trainyard_api_requests_total[$__rate_interval]))"},
        unit="reqps",
    ),
    Panel(
        "Latency of requests, p99",
        {
            "{{verb}}": "histogram_quantile(0.99, "
            "sum by (verb, le) (rate(trainyard_api_request_duration_seconds_bucket[$__rate_interval])))"
        },
        unit="s",
    ),
    Panel(
        "Watches that do not work",
        {"{{resource}}.{{group}} {{state}}": 'trainyard_watch_state{state=~"failing|missing"} == 1'},
    ),
    Panel("Objects in the stores", {"{{resource}}.{{group}}": "max by (group, resource) (trainyard_watch_objects)"}),
    Panel("Leader", {"{{pod}}": "trainyard_leader"}),
    Panel("Memory of the operator", {"{{pod}}": "process_resident_memory_bytes"}, unit="bytes"),
)


def rules(runbook: str = RUNBOOK) -> Json:
    """The rule groups, as Prometheus reads them."""
    return {"groups": [{"name": "trainyard", "rules": [alert.rule(runbook) for alert in ALERTS]}]}


def prometheus_rule(namespace: str) -> Json:
    """The alerts as a PrometheusRule of the Prometheus operator."""
    return _object("PrometheusRule", namespace) | {"spec": rules()}


def pod_monitor(namespace: str, app: str) -> Json:
    """A PodMonitor of the Prometheus operator for the pods with this label `app`: each replica is scraped."""
    spec = {"selector": {"matchLabels": {"app": app}}, "podMetricsEndpoints": [{"port": "metrics", "path": "/metrics"}]}
    return _object("PodMonitor", namespace) | {"spec": spec}


def _object(kind: str, namespace: str) -> Json:
    meta = {"name": "trainyard", "namespace": namespace, "labels": {"app.kubernetes.io/part-of": "trainyard"}}
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "metadata": meta}


def dashboard() -> Json:
    """A dashboard of Grafana (10 and later), two panels beside each other."""
    return {
        "uid": "trainyard",
        "title": "Trainyard",
        "tags": ["trainyard", "kubernetes"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _variable("namespace", "job_namespace"), _variable("kind", "kind")]},
        "panels": [_panel(number, panel) for number, panel in enumerate(PANELS)],
    }


_PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str, label: str) -> Json:
    return {
        "name": name,
        "type": "query",
        "datasource": _PROMETHEUS,
        "query": {"query": f"label_values(trainyard_jobs, {label})", "refId": name},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(number: int, panel: Panel) -> Json:
    stacking = {"mode": "normal" if panel.stack else "none"}
    custom = {"fillOpacity": 20 if panel.stack else 0, "stacking": stacking}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _PROMETHEUS,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {"tooltip": {"mode": "multi"}, "legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _PROMETHEUS, "expr": expr, "legendFormat": legend}
            for index, (legend, expr) in enumerate(panel.queries.items())
        ],
    }
