"""The progress of replicas from the last lines of their logs, where no Trainyard node measures: on a real cluster,
whose kubelets know when each line was written. The lines are parsed as by a node (node/kubelet/usage/progress.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from trainyard.client import ApiClient, ApiError, Forbidden
from trainyard.node.kubelet.usage.progress import StepRate, parse_samples, since_of
from trainyard.objects import Json, annotations_of, name_of, namespace_of, parse_time
from trainyard.objects.usage import METRICS, Progress

TAIL_LINES, AT_ONCE = 100, 8
MAX_LOG_BYTES = 1 << 16  # of the end of a log, and of its beginning
LOG_TIMEOUT = 10.0  # seconds of one request


class LogProgress(NamedTuple):
    """The progress by name of the pod, and why no log can be read, "" if the API server refuses none."""

    by_pod: Mapping[str, Progress]
    refusal: str


async def read_log_progress(api: ApiClient, pods: Iterable[Json], most: int) -> LogProgress:
    """The progress of the first `most` running pods, of those that print steps."""
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"][:most]
    limit, by_pod, refusals = asyncio.Semaphore(AT_ONCE), dict[str, Progress](), list[str]()

    async def read(pod: Json) -> None:
        try:
            async with limit:
                tail = await read_tail(api, pod, first_container(pod), TAIL_LINES, timestamps=True)
        except Forbidden:
            refusals.append(f"no steps: you may not get pods/log in namespace {namespace_of(pod)}")
        else:
            if progress := progress_of_log(pod, tail):
                by_pod[name_of(pod)] = progress

    await asyncio.gather(*map(read, running))
    return LogProgress(by_pod, "".join(refusals[:1]))


async def read_tail(
    api: ApiClient, pod: Json, container: str, lines: int, *, previous: bool = False, timestamps: bool = False
) -> bytes:
    """The last lines of a log, at most MAX_LOG_BYTES; b"" if it cannot be read: it has just ended, or its node does not
    answer. Raises Forbidden."""
    tail = b""
    log = api.logs(
        namespace_of(pod), name_of(pod), container, previous=previous, tail_lines=lines, timestamps=timestamps
    )
    try:
        async with asyncio.timeout(LOG_TIMEOUT):
            async for chunk in log:
                tail = (tail + chunk)[-MAX_LOG_BYTES:]
    except Forbidden:
        raise
    except (ApiError, TimeoutError):
        return b""
    return tail


def first_container(pod: Json) -> str:
    """The name of the container whose output is taken for the steps of the pod; "" without any."""
    return str(((pod.get("spec") or {}).get("containers") or [{}])[0].get("name") or "")


def progress_of_log(pod: Json, text: bytes) -> Progress | None:
    """The progress of a pod in the lines of its log; see `progress_of_lines`."""
    return progress_of_lines(text, has_patterns=annotations_of(pod).get(METRICS) != "off")


def progress_of_lines(text: bytes, *, has_patterns: bool = True) -> Progress | None:
    """The progress in lines that begin with their RFC 3339 time; None if they have no step."""
    samples: list[tuple[float, dict[str, float], str]] = []
    for at, line in _timed_lines(text):
        values, source = parse_samples(line, is_output=True, has_patterns=has_patterns)
        samples += [(at, sample, source) for sample in values if at is not None]
    if any(source == "output" for _, _, source in samples):
        samples = [sample for sample in samples if sample[2] == "output"]
    rate, latest, since = StepRate(), dict[str, float](), dict[str, float | None]()
    for at, sample, _ in samples:
        latest |= sample
        since = since_of(since, sample, latest.get("step"))
        if "step" in sample:
            rate.add(at, sample["step"])
    if "step" not in latest:
        return None
    end, _, source = samples[-1]
    silence, pace = rate.last(end) or (0.0, None)
    return Progress(latest, rate.per_second(end), source, since, end - silence, pace)


def without_times(text: bytes) -> bytes:
    """The lines without the times before them."""
    return b"\n".join(line for _, line in _timed_lines(text))


def _timed_lines(text: bytes) -> Iterable[tuple[float | None, bytes]]:
    """The lines with their times, Unix seconds; a line that begins with none, as where the text is cut, has None."""
    for line in text.split(b"\n"):
        stamp, _, rest = line.partition(b" ")
        at = parse_time(stamp.decode("ascii", "replace"))
        yield at, line if at is None else rest
