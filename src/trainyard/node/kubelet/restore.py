"""The lifecycle state with which a pod begins on this node: from its spec, and, for a pod that an earlier process of
this node started, restored from its status. Pure.

Rules:
- A container whose status is running is lost: its process ended together with the node process that started it. It
  counts as ended with exit code 137, and the pod's restartPolicy decides whether it runs again. So a container that may
  run only once is never run twice.
- A pod that ends because its containers are lost has the condition DisruptionTarget, as after a graceful shutdown of
  the node: it did not fail by itself, and its controller replaces it without counting a failure (docs/rules.md S27).
- The same holds for a run that has a log file on this machine but no entry in the status: the node was killed before it
  wrote the status of that run.
- A terminated container stays terminated, and a container in back-off stays in back-off.
- In a terminated pod no container is started; the pod is kept so that its logs can be read.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.node.kubelet.hooks import hooks_of
from trainyard.node.kubelet.pod_state import DEFAULT_GRACE, TERMINAL_STATES, Container, ContainerState, Pod, Run
from trainyard.node.kubelet.probes.schedule import probes_of
from trainyard.objects import Json, name_of, namespace_of, parse_time, pod_containers, uid_of
from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS, restart_policy
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.objects.structs import replace

LOST = ("ContainerStatusUnknown", "the process was lost when its node stopped or was killed")


def initial_state(pod: Json) -> Pod:
    """The lifecycle state of a pod without any started container."""
    spec = pod.get("spec") or {}
    grace = spec.get("terminationGracePeriodSeconds")
    deadline = spec.get("activeDeadlineSeconds")
    policy = str(spec.get("restartPolicy") or "Always")
    return Pod(
        name=f"{name_of(pod)}_{namespace_of(pod)}",
        uid=uid_of(pod),
        policy=policy,
        containers=tuple(
            Container(
                str(container.get("name")),
                init,
                restart_policy=restart_policy(container, policy, init=init),
                probes=frozenset(probes_of(container)),
                hooks=frozenset(hooks_of(container)),
            )
            for container, init in pod_containers(pod)
        ),
        grace=float(grace) if grace is not None else DEFAULT_GRACE,
        deadline=float(deadline) if deadline is not None else None,
    )


def returned(state: Pod, status: Json, newest_runs: Mapping[str, int] | None = None) -> tuple[Pod, tuple[str, ...]]:
    """The lifecycle state of a pod with that status, and the names of its lost containers, for which the caller feeds
    `Ended`. Without any started container the state is returned unchanged. `newest_runs`: container name -> number of
    its newest run that has a log on this machine."""
    statuses = {
        container.name: container for container in container_statuses(status) if container.status.get("containerID")
    }
    newest_runs = newest_runs or {}
    if not statuses and not newest_runs:
        return state, ()
    restored = (
        _restored_container(container, statuses[container.name]) if container.name in statuses else container
        for container in state.containers
    )
    containers = tuple(_with_unreported_run(container, newest_runs.get(container.name, 0)) for container in restored)
    started = parse_time(status.get("startTime"))
    state = replace(state, containers=containers, started=state.started if started is None else started)
    return state, tuple(container.name for container in containers if container.state is ContainerState.RUNNING)


def as_ended(state: Pod, status: Json) -> Pod:
    """The lifecycle state of a pod whose phase is Succeeded or Failed: no container of it runs or will run."""
    state, _ = returned(state, status)
    return replace(
        state,
        containers=tuple(
            container if container.state in TERMINAL_STATES else replace(container, state=ContainerState.DROPPED)
            for container in state.containers
        ),
    )


def ended_with_node(state: Pod) -> bool:
    """True for a pod that is over, and of whose containers only lost ones failed."""
    failed = [
        container.last
        for container in state.containers
        if container.last and container.last.code and not container.sidecar
    ]
    return state.has_ended and bool(failed) and all(run.reason == LOST[0] for run in failed)


def _restored_container(container: Container, status: ContainerStatus) -> Container:
    last, number = status.previous_terminated, status.restarts + 1
    if status.removed and last:
        number = status.restarts
        return replace(container, run=number, last=_run(number, last), removed=True, reason=RESTARTING_ALL_CONTAINERS)
    if running := status.state("running"):
        container = replace(
            container, state=ContainerState.RUNNING, run=number, started=parse_time(running.get("startedAt")) or 0.0
        )
        return replace(container, last=_run(number - 1, last) if last else None, failures=number - 1)
    if terminated := status.state("terminated"):
        previous = _run(number - 1, last) if last else None
        return replace(
            container,
            state=ContainerState.ENDED,
            run=number,
            last=_run(number, terminated),
            previous=previous,
            failures=number,
        )
    if last:
        return replace(container, state=ContainerState.ENDED, run=number, last=_run(number, last), failures=number)
    return container


def _with_unreported_run(container: Container, newest_run: int) -> Container:
    return (
        replace(container, state=ContainerState.RUNNING, run=newest_run, started=0.0, failures=newest_run - 1)
        if newest_run > container.run
        else container
    )


def _run(number: int, terminated: Json) -> Run:
    code, finished = int(terminated.get("exitCode") or 0), parse_time(terminated.get("finishedAt")) or 0.0
    started = parse_time(terminated.get("startedAt")) or 0.0
    return Run(
        number, code, str(terminated.get("reason") or ""), str(terminated.get("message") or ""), started, finished
    )
