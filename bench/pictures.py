"""The pictures of docs/performance.md, and its table, from the JSON of a run of `bench.peers`.

    python -m bench.pictures build/bench/peers.json docs/pictures --page docs/performance.md

    latency.svg           one-pod jobs, idle and beside a big job: a cumulative curve for each operator
    growth-replicas.svg   one job by its replicas: time, operator CPU, requests
    growth-jobs.svg       many jobs by their number: the same
    growth-tfjob.svg      our TfJob by its replicas: the same

A picture whose rows were not measured is not written, and the table only when all of them were.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers import OURS, ROWS, Samples, points, table
from bench.report import growth_exponent, write_table
from bench.svg import Axis, Chart, Line, Point, picture

LINEAR = "linear growth"


def cumulative(values: Sequence[float]) -> list[Point]:
    """Steps from 0 to 100 %: at (x, y) so many percent of the values are at most x."""
    ordered, count = sorted(values), len(values)
    return [(value, 100 * share / count) for at, value in enumerate(ordered) for share in (at, at + 1)]


def latency(results: Mapping[str, Samples], replicas: int) -> tuple[str, list[Chart]]:
    """What a reader sees, and the charts."""
    charts, sentences = [], []
    for name, title in (
        ("idle.pod", "idle"),
        ("beside.another", f"beside a job of {2 * replicas}, other namespace"),
        ("beside.same", f"beside a job of {2 * replicas}, same namespace"),
    ):
        measured = {
            operator: [1000 * value for value in measurements.get(name, [])]
            for operator, measurements in results.items()
        }
        measured = {operator: values for operator, values in measured.items() if values}
        if measured:
            lines = [Line(operator, cumulative(values)) for operator, values in measured.items()]
            bare = results.get(OURS, {}).get("idle.bare", []) if name == "idle.pod" else []
            if bare:
                lines.append(Line("a bare Pod", cumulative([1000 * value for value in bare]), reference=True))
            charts.append(Chart(title, Axis("ms from the POST to the Pod", log=True), Axis("% of jobs"), lines))
            medians = ", ".join(
                f"{operator} {statistics.median(values):.0f} ms" for operator, values in measured.items()
            )
            sentences.append(f"Medians, {title}: {medians}.")
    return " ".join(sentences), charts


def growth(results: Mapping[str, Samples], curve: str, label: str) -> tuple[str, list[Chart]]:
    """What a reader sees, and the charts: medians with ranges, and a line of the exponent 1 from our first point."""
    charts, sentences = [], []
    for metric, title, unit in (
        ("seconds", "time", "seconds"),
        ("CPU", "CPU of the operator", "seconds"),
        ("requests", "requests of the operator", "count"),
    ):
        lines = []
        for operator, samples in results.items():
            by_size = {size: values for size, values in points(samples, curve, metric).items() if min(values) > 0}
            if len(by_size) > 1:
                medians = {size: statistics.median(values) for size, values in by_size.items()}
                ranges = [(min(values), max(values)) for values in by_size.values()]
                lines.append(Line(operator, list(medians.items()), ranges))
                sentences.append(f"Growth of {title}, {operator}: exponent {growth_exponent(medians):.2f}.")
        if lines:
            (first, low), (last, _) = lines[0].points[0], lines[0].points[-1]
            lines.append(Line(LINEAR, [(first, low), (last, low * last / first)], reference=True))
            charts.append(Chart(title, Axis(label, log=True), Axis(unit, log=True), lines))
    return " ".join(sentences), charts


def pictures(run: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(file name, SVG) of each picture whose rows were measured."""
    results, replicas = run["samples"], run["replicas"]
    note = f"{run['cores']} cores, {run['date']}; rounds: {run['rounds']}"
    for name, title, (description, charts) in (
        ("latency", "A one-pod job, from its POST to its Pod", latency(results, replicas)),
        ("growth-replicas", "One job, until all of its children exist", growth(results, "replicas", "replicas")),
        ("growth-jobs", "Four-pod jobs at once, until all have ended", growth(results, "jobs", "jobs")),
        ("growth-tfjob", "A TfJob, until all of its batch Jobs exist", growth(results, "tfjob", "replicas")),
    ):
        if charts:
            yield f"{name}.svg", picture(title, description, charts, note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the JSON of a run of bench.peers")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", type=Path, help="the page that has the table")
    options = parser.parse_args()
    run = json.loads(options.run.read_text())
    if options.page and set(run["rows"]) == set(ROWS):
        write_table(options.page, "peers", table(run["samples"], run["replicas"], run["jobs"]))
        print(options.page)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, text in pictures(run):
        (options.folder / name).write_text(text)
        print(options.folder / name)


if __name__ == "__main__":
    main()
