"""The progress of replicas from the last lines of their logs, where no Trainyard node measures: on a real cluster,
whose kubelets know when each line was written. The lines are parsed as by a node (node/kubelet/usage/progress.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from trainyard.client import ApiClient, ApiError
from trainyard.node.kubelet.usage.progress import StepRate, parse_samples, since_of
from trainyard.objects import Json, annotations_of, name_of, namespace_of, parse_time
from trainyard.objects.usage import METRICS, Progress

MAX_LOGS, TAIL_LINES = 8, 100
LOG_TIMEOUT = 5.0  # seconds


async def read_log_progress(api: ApiClient, pods: Iterable[Json]) -> Mapping[str, Progress]:
    """The progress of at most MAX_LOGS running pods, by their name; pods that print no steps have none."""
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"][:MAX_LOGS]
    tails = await asyncio.gather(*(_read_tail(api, pod) for pod in running))
    progress = {
        name_of(pod): progress_of_lines(tail, has_patterns=annotations_of(pod).get(METRICS) != "off")
        for pod, tail in zip(running, tails, strict=True)
    }
    return {name: value for name, value in progress.items() if value is not None}


async def _read_tail(api: ApiClient, pod: Json) -> bytes:
    container = str(((pod.get("spec") or {}).get("containers") or [{}])[0].get("name") or "")
    lines = api.logs(namespace_of(pod), name_of(pod), container, tail_lines=TAIL_LINES, timestamps=True)
    try:
        async with asyncio.timeout(LOG_TIMEOUT):
            return b"".join([chunk async for chunk in lines])
    except (ApiError, TimeoutError):
        return b""


def progress_of_lines(text: bytes, *, has_patterns: bool = True) -> Progress | None:
    """The progress in lines that begin with their RFC 3339 time; None if they have no step."""
    samples: list[tuple[float, dict[str, float], str]] = []
    for line in text.split(b"\n"):
        stamp, _, rest = line.partition(b" ")
        at = parse_time(stamp.decode("ascii", "replace"))
        values, source = parse_samples(rest, is_output=True, has_patterns=has_patterns)
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
