"""The timeline of a run as inline SVG: a row for each replica, with the segments of all its pods, and below it how busy
its GPUs were. Pure.

A sample of the use holds until the next one, as long as its pod runs, as on the page of jobs. No state is told by
colour alone: phases differ in height, and a run that failed has its exit code beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from trainyard.cli.output.html import Html, element, join
from trainyard.objects.numbers import count_text
from trainyard.page.series import Curve
from trainyard.views.durations import format_clock
from trainyard.views.timeline import Lane, Segment

MAX_ROWS = 200  # replicas; those with failures are shown first
WIDTH, LABEL_WIDTH, ROW_HEIGHT, USE_HEIGHT, AXIS_HEIGHT = 960, 170, 18, 12, 22  # pixels
HEIGHTS = {"pending": 2, "starting": 6, "running": 12, "waiting": 2, "omitted": 4}
LEGEND = (
    ("pending", "no node yet"),
    ("starting", "image, volumes, init containers"),
    ("running", "its program runs"),
    ("waiting", "between two runs"),
    ("omitted", "runs that were not kept"),
)
TICKS = 6


def timeline_svg(lanes: Sequence[Lane], end: float, use: Mapping[str, Curve] | None = None) -> Html:
    """The timeline with its legend. `end`: where segments that go on are cut, in Unix seconds; `use`: of the GPUs of a
    replica, in percent."""
    use = use or {}
    begin = min((lane.segments[0].start for lane in lanes if lane.segments), default=None)
    if begin is None:
        return element("p", "No pod is recorded.")
    rows: dict[str, list[Lane]] = {}
    for lane in lanes:
        rows.setdefault(lane.replica, []).append(lane)
    shown = sorted(sorted(rows, key=lambda name: not _has_failed(rows[name]))[:MAX_ROWS], key=list(rows).index)
    scale = _Scale(begin, max(end, begin + 1))
    parts: list[Html] = []
    height = AXIS_HEIGHT
    for name in shown:
        parts += _row(height, name, rows[name], scale)
        height += ROW_HEIGHT
        if name in use:
            parts += _use(height, name, rows[name], use[name], scale)
            height += USE_HEIGHT
    chart = element(
        "svg",
        *_axis(scale, height),
        *parts,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"What {count_text(len(shown), 'replica')} did when",
    )
    more = [element("p", f"and {count_text(len(rows) - len(shown), 'more replica')}")] if len(rows) > len(shown) else []
    return join(_legend(any(name in use for name in shown)), chart, *more)


class _Scale:
    """Times to pixels."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, end

    def x(self, time: float) -> float:
        return LABEL_WIDTH + (WIDTH - LABEL_WIDTH) * (min(time, self.end) - self.begin) / (self.end - self.begin)


def _has_failed(lanes: Sequence[Lane]) -> bool:
    return any(segment.exit_code for lane in lanes for segment in lane.segments)


def _row(top: float, name: str, lanes: Sequence[Lane], scale: _Scale) -> Iterator[Html]:
    middle = top + ROW_HEIGHT / 2
    yield element("text", name[:24], x=0, y=middle + 4)
    for lane in lanes:
        for segment in lane.segments:
            yield _bar(lane, segment, middle, scale)
            if segment.exit_code and segment.end is not None:
                yield element("text", f"✗{segment.exit_code}", x=scale.x(segment.end) + 2, y=middle + 4, class_="exit")


def _use(top: float, name: str, lanes: Sequence[Lane], use: Curve, scale: _Scale) -> Iterator[Html]:
    """An area for each run of the replica; its height is the share of the time in which its GPUs worked."""
    base = top + USE_HEIGHT - 2
    for segment in (segment for lane in lanes for segment in lane.segments if segment.phase == "running"):
        end = scale.end if segment.end is None else segment.end
        samples = [(at, value) for at, value in zip(use.time, use.value, strict=True) if segment.start <= at <= end]
        if not samples:
            continue
        heights = [round(base - value / 100 * (USE_HEIGHT - 2), 1) for _, value in samples]
        edges = [*(round(scale.x(at), 1) for at, _ in samples), round(scale.x(end), 1)]
        steps = "".join(f"H{x:g}V{y:g}" for x, y in zip(edges, heights, strict=False))
        values = [value for _, value in samples]
        text = f"{name}: its GPUs {mean(values):.0f} % busy on average, {max(values):.0f} % at most"
        path = f"M{edges[0]:g} {base:g}{steps}H{edges[-1]:g}V{base:g}Z"
        yield element("path", element("title", text), d=path, class_="use")


def _bar(lane: Lane, segment: Segment, middle: float, scale: _Scale) -> Html:
    end = scale.end if segment.end is None else segment.end
    left, right, height = scale.x(segment.start), scale.x(end), HEIGHTS[segment.phase]
    times = [format_clock(time - scale.begin) for time in (segment.start, end)]
    text = f"{lane.replica}, attempt {lane.attempt}, pod {lane.pod}: {segment.phase} {times[0]} to {times[1]}"
    if segment.exit_code is not None:
        text += f", exit code {segment.exit_code}" + (f" ({segment.reason})" if segment.reason else "")
    failed = " failed" if segment.exit_code else ""
    return element(
        "rect",
        element("title", text),
        x=round(left, 1),
        y=middle - height / 2,
        width=max(1.0, round(right - left, 1)),
        height=height,
        class_=f"{segment.phase}{failed}",
    )


def _axis(scale: _Scale, height: float) -> Iterator[Html]:
    for tick in range(TICKS):
        time = scale.begin + (scale.end - scale.begin) * tick / (TICKS - 1)
        x = round(scale.x(time), 1)
        anchor = "end" if tick == TICKS - 1 else "start" if tick == 0 else "middle"
        yield element("line", x1=x, x2=x, y1=AXIS_HEIGHT - 4, y2=height)
        yield element("text", format_clock(time - scale.begin), x=x, y=12, text_anchor=anchor)


def _legend(has_use: bool) -> Html:
    items = []
    for phase, meaning in LEGEND:
        height = HEIGHTS[phase]
        bar = element("rect", x=0, y=7 - height / 2, width=24, height=height, class_=phase)
        items.append(element("span", element("svg", bar, viewBox="0 0 24 14"), f" {phase}: {meaning}"))
    if has_use:
        area = element("path", d="M0 13V9H8V3H16V6H24V13Z", class_="use")
        items.append(element("span", element("svg", area, viewBox="0 0 24 14"), " use: how busy its GPUs are"))
    return element("p", *items, class_="legend")
