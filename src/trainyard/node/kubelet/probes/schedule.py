"""When a probe of a running container is due, and from which results on its container counts as started, ready or
broken. Pure; times are seconds of any one clock.

Rules of the kubelet (1.37):
- A startup or liveness probe runs every `periodSeconds` of the run of its container, for the first time after one
  period, and not before `initialDelaySeconds`. A readiness probe runs at once, so that a container is not kept from its
  Services, and then every period.
- Liveness and readiness probes wait for the success of the startup probe; `initialDelaySeconds` counts from the start
  of the container all the same.
- A probe that takes longer than its period delays the next one; none is run twice at a time.
- Only `failureThreshold` failures, or `successThreshold` successes, in a row change the state of the container.
- A probe that could not be run (no such command, no port of that name) is no result: it neither passes nor fails."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from trainyard.node.kubelet.pod_state import ProbeKind
from trainyard.objects import Json

_FIELDS = {
    ProbeKind.STARTUP: "startupProbe",
    ProbeKind.LIVENESS: "livenessProbe",
    ProbeKind.READINESS: "readinessProbe",
}


class Probe(msgspec.Struct, frozen=True):
    """One probe of a container's spec, with the defaults of the API server; times in seconds. `grace`: its own
    terminationGracePeriodSeconds, None for that of the pod. `action`: the object with `exec`, `httpGet` ..."""

    kind: ProbeKind
    action: Json
    initial_delay: float = 0.0
    period: float = 10.0
    timeout: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3
    grace: float | None = None


class Progress(msgspec.Struct, frozen=True):
    """The progress of one probe in one run of its container. `due`: when it is to be run next; `passed` and `count`:
    the last result, and how often it has come in a row; `state`: what has been reported to the lifecycle."""

    due: float
    passed: bool | None = None
    count: int = 0
    state: bool | None = None


def probes_of(container: Json) -> Mapping[ProbeKind, Probe]:
    """The probes of a container of a pod's spec."""
    return {
        kind: _probe(kind, spec) for kind, field in _FIELDS.items() if isinstance(spec := container.get(field), dict)
    }


def _probe(kind: ProbeKind, spec: Json) -> Probe:
    # 0 means the default, as for the API server; a node of another server may see it.
    grace = spec.get("terminationGracePeriodSeconds")
    return Probe(
        kind,
        spec,
        float(spec.get("initialDelaySeconds") or 0),
        float(spec.get("periodSeconds") or 10),
        float(spec.get("timeoutSeconds") or 1),
        int(spec.get("successThreshold") or 1),
        int(spec.get("failureThreshold") or 3),
        None if grace is None else float(grace),
    )


def begin(probe: Probe, started: float, now: float) -> Progress:
    """The progress of a probe that begins now. `started`: when its container was started."""
    earliest = started + probe.initial_delay
    if probe.kind is ProbeKind.READINESS:
        return Progress(now + probe.period * max(0, math.ceil((earliest - now) / probe.period)))
    periods = math.ceil((max(earliest, now) - started) / probe.period)
    return Progress(started + probe.period * max(1, periods))


def after(probe: Probe, progress: Progress, passed: bool | None, now: float) -> tuple[Progress, bool | None]:
    """The progress after a probe that has ended now, and the new state of the container: True it has started or is
    ready, False not, None as before. `passed`: None for a probe that could not be run."""
    due = max(progress.due + probe.period, now)
    if passed is None:
        return msgspec.structs.replace(progress, due=due), None
    count = progress.count + 1 if passed is progress.passed else 1
    reached = count >= (probe.success_threshold if passed else probe.failure_threshold)
    state = passed if reached else progress.state
    return Progress(due, passed, count, state), (state if state is not progress.state else None)
