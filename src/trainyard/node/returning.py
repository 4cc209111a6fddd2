"""Pods that a former life of this node had begun: what their status tells of them becomes their lifecycle again. Pure.

Rules:
- A container that ran then is lost: its process died with the life that had started it. It has ended with 137, and the
  pod's restartPolicy says whether it runs again. So nothing that may run once is run twice.
- The same holds of a run that left a log on this machine and that the status does not know: its life was killed before
  it could say that it had started it.
- A container that had ended stays ended, and one that waited for its next start waits on.
- Of a pod that had ended nothing begins any more; it is known for its logs.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.node.lifecycle import OVER, At, Container, Pod, Run
from trainyard.objects import Json, parse_time
from trainyard.objects.values import replace

LOST = ("ContainerStatusUnknown", "the process was lost when its node stopped or was killed")


def returned(life: Pod, status: Json, begun: Mapping[str, int] | None = None) -> tuple[Pod, tuple[str, ...]]:
    """The lifecycle of a pod with that status, and the containers that must be told to have ended. Unchanged when
    nothing of it had been started. `begun`: the newest run of each container that left something here."""
    seen = {
        str(one.get("name")): one
        for part in ("initContainerStatuses", "containerStatuses")
        for one in status.get(part) or []
        if isinstance(one, dict) and one.get("containerID")
    }
    begun = begun or {}
    if not seen and not begun:
        return life, ()
    known = (_container(one, seen[one.name]) if one.name in seen else one for one in life.containers)
    found = tuple(_unsaid(one, begun.get(one.name, 0)) for one in known)
    began = parse_time(status.get("startTime"))
    life = replace(life, containers=found, began=life.began if began is None else began)
    return life, tuple(one.name for one in found if one.at is At.RUNNING)


def ended(life: Pod, status: Json) -> Pod:
    """The lifecycle of a pod whose phase says that it has ended."""
    life, _ = returned(life, status)
    return replace(
        life, containers=tuple(one if one.at in OVER else replace(one, at=At.DROPPED) for one in life.containers)
    )


def _container(one: Container, said: Json) -> Container:
    state, last = said.get("state") or {}, (said.get("lastState") or {}).get("terminated")
    number = int(said.get("restartCount") or 0) + 1
    if running := state.get("running"):
        one = replace(one, at=At.RUNNING, run=number, started=parse_time(running.get("startedAt")) or 0.0)
        return replace(one, last=_run(number - 1, last) if last else None, failures=number - 1)
    if terminated := state.get("terminated"):
        before = _run(number - 1, last) if last else None
        return replace(one, at=At.ENDED, run=number, last=_run(number, terminated), before=before, failures=number)
    if last:
        return replace(one, at=At.ENDED, run=number, last=_run(number, last), failures=number)
    return one


def _unsaid(one: Container, begun: int) -> Container:
    return replace(one, at=At.RUNNING, run=begun, started=0.0, failures=begun - 1) if begun > one.run else one


def _run(number: int, said: Json) -> Run:
    code, finished = int(said.get("exitCode") or 0), parse_time(said.get("finishedAt")) or 0.0
    started = parse_time(said.get("startedAt")) or 0.0
    return Run(number, code, str(said.get("reason") or ""), str(said.get("message") or ""), started, finished)
