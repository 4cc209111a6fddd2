"""Alerts and dashboard against a scrape of a running operator: each metric, label and label value in them exists."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.app.operating_setup import options, until_metric
from tests.app.operating_values import NARROW, READ, TFJOB, Site, tf_job
from tests.support.running_operator import operating
from tools import monitoring

Scrape = dict[str, dict[str, set[str]]]  # sample name -> label -> values

METRIC = re.compile(r"\b((?:trainyard|training_operator|process)_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~?|!=|!~)"([^"]*)"')
GROUPED = re.compile(r"\bby \(([^)]*)\)")
TARGET = {"pod", "instance", "namespace"}  # labels that Prometheus adds to each sample

READ_SERVICES = {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": READ}

EXPRESSIONS = {alert.name: (alert.expr, alert.summary) for alert in monitoring.ALERTS}
EXPRESSIONS |= {
    f"{panel.title}: {legend or query}": (query, legend)
    for panel in monitoring.PANELS
    for legend, query in panel.queries.items()
}


async def scrape_of_every_metric(site: Site) -> Scrape:
    """The samples of an operator with a job that is blocked: its Service cannot be created."""
    await site.account([rule for rule in NARROW if "services" not in rule["resources"]] + [READ_SERVICES])
    async with operating(options(site, bind=("127.0.0.1", 0))) as process, aiohttp.ClientSession() as http:
        await site.api.create(TFJOB, "default", tf_job())
        await site.says("mnist", "Blocked")
        blocked = "trainyard_jobs_blocked"
        await until_metric(process, blocked, 1)
        async with http.get(f"http://127.0.0.1:{process.health.port}/metrics") as answer:
            text = await answer.text()
    scrape: Scrape = defaultdict(lambda: defaultdict(set))
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            scrape[sample.name]  # also one without labels
            for label, value in sample.labels.items():
                scrape[sample.name][label].add(value)
    return scrape


def mistakes(expr: str, text: str, scrape: Scrape) -> Iterator[str]:
    """What an expression and the templates of its text name that the operator does not serve."""
    metrics = METRIC.findall(expr)
    if not metrics or expr.count("(") != expr.count(")"):
        yield f"not an expression: {expr}"
    labels = set(TARGET)
    for name, matchers in metrics:
        if name not in scrape:
            yield f"no metric {name}"
            continue
        labels |= scrape[name].keys()
        for label, _, values in MATCHER.findall(matchers):
            if label not in scrape[name]:
                yield f"{name} has no label {label}"
            elif not values.startswith("$"):
                yield from (f"{name} has no {label}={v}" for v in values.split("|") if v not in scrape[name][label])
    grouped = {label for group in GROUPED.findall(expr) for label in group.split(", ")}
    yield from (f"no label {label} to group by" for label in grouped - labels)
    templates = set(re.findall(r"\$labels\.(\w+)|\{\{(\w+)\}\}", text))
    named = {first or second for first, second in templates}
    known = grouped if re.search(r"\b(sum|max)\b", expr) else labels
    yield from (f"no label {label} in the result" for label in named - known)


async def test_alerts_and_dashboard_use_only_metrics_that_the_operator_serves(site: Site) -> None:
    scrape = await scrape_of_every_metric(site)
    wrong = {name: list(mistakes(expr, text, scrape)) for name, (expr, text) in EXPRESSIONS.items()}
    assert {name: listed for name, listed in wrong.items() if listed} == {}
    variables = re.findall(r"label_values\((\w+), (\w+)\)", str(monitoring.dashboard()["templating"]))
    assert variables and all(label in scrape[name] for name, label in variables)


@pytest.mark.parametrize(
    "expr",
    [
        "trainyard_no_such_metric",
        'trainyard_jobs{namespace="a"}',
        'trainyard_queue_depth{state="overdue"}',
        "sum by (job) (trainyard_jobs)",
        "sum(trainyard_jobs",
        "1",
    ],
)
async def test_the_comparison_reports_a_wrong_metric_name(expr: str) -> None:
    scrape: Scrape = {
        "trainyard_jobs": {"job_namespace": {"a"}, "kind": {"TfJob"}},
        "trainyard_queue_depth": {"state": {"due", "later"}},
    }
    assert list(mistakes(expr, "", scrape))


def test_every_alert_has_its_section_in_the_runbook() -> None:
    page = (Path(__file__).parents[2] / monitoring.RUNBOOK).read_text()
    sections = re.findall(r"^### (Trainyard\w+)$", page, re.M)
    assert sections == [alert.name for alert in monitoring.ALERTS]
    links = {alert.rule()["annotations"]["runbook_url"].partition("#")[2] for alert in monitoring.ALERTS}
    assert links == {section.lower() for section in sections}


def test_a_panel_has_its_own_place_and_name() -> None:
    panels = monitoring.dashboard()["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels})
    assert len(panels) == len(places)
