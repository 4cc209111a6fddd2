"""A run of the history as one HTML page, which needs no network and runs no script. Pure.

Everything that comes from a job, its pods and their output is escaped (output/html.py). The Content-Security-Policy
forbids every request and every script, should a browser see markup where there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from trainyard.cli.export.curves import curve_figure
from trainyard.cli.export.timeline import timeline_svg
from trainyard.cli.output.html import Html, element, join
from trainyard.objects import format_time
from trainyard.objects.numbers import count_text
from trainyard.page.series import Curve, SeriesAnswer
from trainyard.views.diagnosis import LEVEL_NAMES, JobDiagnosis
from trainyard.views.durations import format_clock
from trainyard.views.event_view import EventView
from trainyard.views.replica_view import ReplicaView
from trainyard.views.timeline import Lane

MAX_ROWS = 2000  # of a table: the first and the last ones
MAX_CURVES = 64
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark; --bad: #b3261e; --run: #2e7d32; --start: #b26a00; --wait: #5f6368; --line: #d0d4d9;
  --back: #f5f6f8; }
@media (prefers-color-scheme: dark) { :root { --bad: #ff8a80; --run: #66bb6a; --start: #ffb74d; --wait: #9aa0a6;
  --line: #3c4043; --back: #1b1d20; } }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 64rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: .2rem .6rem .2rem 0; text-align: left; vertical-align: top; }
pre { background: var(--back); border: 1px solid var(--line); overflow-x: auto; padding: .6rem; white-space: pre-wrap; }
details { margin: .3rem 0; } summary { cursor: pointer; }
.problem, .failed { color: var(--bad); } .omitted-lines { color: var(--wait); font-style: italic; }
svg { width: 100%; } svg text { fill: currentColor; font-size: 11px; } svg line { stroke: var(--line); }
svg line.not-finite { stroke: var(--bad); }
svg .exit { fill: var(--bad); } .pending, .waiting, .omitted { fill: var(--wait); } .starting { fill: var(--start); }
.running { fill: var(--run); } .use { fill: var(--start); } rect.failed { fill: var(--bad); }
.curves { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); }
figure { margin: 0; } h3 { font-size: 1rem; margin: 0; } figcaption { color: var(--wait); }
polyline { fill: none; stroke: var(--run); stroke-width: 1.5; }
polyline.median { stroke: var(--start); stroke-dasharray: 5 4; stroke-width: 1; }
polygon { fill: var(--line); opacity: .5; }
.legend span { margin-right: 1.2rem; white-space: nowrap; } .legend svg { height: 14px; width: 24px; }
"""


class ExportedLog(msgspec.Struct, frozen=True):
    """The log of one run of a container: its first lines, the number of lines left out, its last lines."""

    name: str  # worker-0, attempt 1, container tensorflow, run 2
    first: Sequence[str]
    omitted: int
    last: Sequence[str]


class ExportedRun(msgspec.Struct, frozen=True):
    """The content of the page. Times are in seconds since the epoch."""

    title: str  # KIND NAMESPACE/NAME
    fields: Sequence[tuple[str, str]]  # those without a value are left out
    diagnosis: JobDiagnosis | None  # None: the record has no job that can be read
    lanes: Sequence[Lane]
    device_use: Mapping[str, Curve]  # by replica: how busy its GPUs were, in percent
    curves: SeriesAnswer
    pods: Sequence[ReplicaView]
    events: Sequence[EventView]
    logs: Sequence[ExportedLog]
    omitted_logs: int
    manifest: str
    end: float  # of the job, or of what is known of it


def export_page(run: ExportedRun) -> str:
    """The whole page."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{run.title} - Trainyard"),
        element("style", Html(STYLE)),
    )
    body = element(
        "body",
        element("h1", run.title),
        _table([], [[name, value] for name, value in run.fields if value]),
        element("h2", "Why"),
        *_findings(run.diagnosis),
        element("h2", "Timeline"),
        timeline_svg(run.lanes, run.end, run.device_use),
        *_curves(run.curves),
        element("h2", "Pods"),
        _table(["replica", "attempt", "state", "restarts", "exit", "ran", "node", "pod"], _pod_rows(run.pods)),
        element("h2", "Events"),
        _table(["time", "count", "type", "reason", "object", "message"], _event_rows(run.events)),
        element("h2", "Logs"),
        *_logs(run),
        element("h2", "Manifest"),
        element("pre", run.manifest or "It cannot be read."),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _curves(answer: SeriesAnswer) -> Iterable[Html]:
    if answer.series or answer.corrupt:
        yield element("h2", "Metrics")
    spreads = {spread.name: spread for spread in answer.spread}
    figures = [curve_figure(curve, spreads.get(curve.name)) for curve in answer.series[:MAX_CURVES]]
    if figures:
        yield element("div", *figures, class_="curves")
    if len(answer.series) > MAX_CURVES:
        yield element("p", f"Left out: {count_text(len(answer.series) - MAX_CURVES, 'more curve')}.")
    for file in answer.corrupt:
        yield element("p", f"{file} cannot be read to the end, it is damaged.")


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    if not rows:
        return element("p", "None.")
    if len(rows) > MAX_ROWS:
        half = MAX_ROWS // 2
        omitted = f"left out: {count_text(len(rows) - 2 * half, 'row')}"
        rows = [*rows[:half], [omitted], *rows[-half:]]
    lines = [element("tr", *(element("th", head, scope="col") for head in heads))] if heads else []
    lines += [element("tr", *(element("td", cell) for cell in row)) for row in rows]
    return element("div", element("table", *lines), class_="wide")


def _findings(diagnosis: JobDiagnosis | None) -> Iterable[Html]:
    if diagnosis is None:
        yield element("p", "The record has no job of a known kind.")
        return
    for finding in diagnosis.findings:
        level = LEVEL_NAMES[finding.level]
        yield element("p", element("strong", f"{level}: ", class_=level), finding.summary)
        if finding.where:
            yield element("p", f"where: {finding.where}")
        if finding.evidence:
            yield element("pre", "\n".join(finding.evidence))
        if finding.fix:
            yield element("p", f"do: {finding.fix}")


def _pod_rows(pods: Sequence[ReplicaView]) -> list[list[str]]:
    rows = []
    for pod in pods:
        duration = (
            format_clock(pod.ended_at - pod.started) if pod.started is not None and pod.ended_at is not None else ""
        )
        rows.append([pod.name, str(pod.attempt), pod.state, str(pod.restarts), pod.exit, duration, pod.node, pod.pod])
    return rows


def _event_rows(events: Sequence[EventView]) -> list[list[str]]:
    return [
        [
            "" if event.time is None else format_time(event.time),
            str(event.count),
            event.type,
            event.reason,
            event.object,
            event.message,
        ]
        for event in events
    ]


def _logs(run: ExportedRun) -> Iterable[Html]:
    if not run.logs:
        yield element("p", "None.")
    for log in run.logs:
        parts: list[str] = ["\n".join(log.first)]
        if log.omitted:
            note = f"left out here: {count_text(log.omitted, 'line')}"
            parts += ["\n", element("span", note, class_="omitted-lines"), "\n", "\n".join(log.last)]
        size = len(log.first) + log.omitted + len(log.last)
        title = f"{log.name}: {count_text(size, 'line')}"
        yield element("details", element("summary", title), element("pre", join(*parts)))
    if run.omitted_logs:
        yield element("p", f"The logs of {count_text(run.omitted_logs, 'more container run')} are left out.")
