"""`trainyard logs JOB`: the logs of all replicas of a job, merged, or of one replica.

Rules:
- Every line is prefixed with its replica, unless --role and --index select one replica: its log is printed unchanged.
- Without -f: the current logs, replica by replica, of the newest pod of each slot; with -p of the run before.
- With -f: until the job has ended, and then to the last line of the ended containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from trainyard.cli.command import options
from trainyard.cli.command.cluster_command import (
    ClusterContext,
    CommandError,
    JobNotFound,
    run_and_exit,
    run_with_cluster,
)
from trainyard.cli.command.codes import INVALID, SUCCEEDED
from trainyard.cli.command.job_names import recorded_job_names
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.structs import replace

if TYPE_CHECKING:
    from trainyard.cli.command.jobs import JobInfo
    from trainyard.cli.output.screen import Screen
    from trainyard.cli.session.job_watch import LogSelection
    from trainyard.core import Role


@click.command()
@click.argument("job", shell_complete=recorded_job_names)
@options.cluster
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until the job has ended.")
@click.option("--role", default="", metavar="ROLE", help="Role of the replicas.  [default: all roles]")
@click.option("--index", type=click.IntRange(min=0), metavar="N", help="Index of the replica.  [default: all replicas]")
@click.option("-p", "--previous", is_flag=True, help="Print the logs of the previous run.")
@click.option(
    "--tail", type=click.IntRange(min=0), metavar="N", help="Number of last lines of each container.  [default: all]"
)
@click.option("-c", "--container", default="", metavar="NAME", help="Name of the container.  [default: all containers]")
@click.option(
    "--attempt", type=click.IntRange(min=0), metavar="N", help="Number of the attempt; its logs are in the history."
)
def logs(job: str, attempt: int | None, **params: Any) -> None:
    """Print the logs of a job's replicas.

    A job that is not in the cluster is read from the history of this machine.

    \b
    Examples:
      trainyard logs -f mnist
      trainyard logs mnist --role worker --index 0 --tail 20
    """
    from trainyard.cli.session.job_watch import LogSelection

    names = ("follow", "role", "index", "previous", "tail", "container")
    selection = LogSelection(**{name: params.pop(name) for name in names})

    def from_history() -> bool:
        from trainyard.cli.session.history_logs import print_recorded_logs

        return print_recorded_logs(job, params["namespace"], selection, attempt)

    def from_history_only() -> None:
        if not from_history():
            raise CommandError(
                f"there is no job {job} in the history of this machine; `trainyard history` lists the jobs"
            )

    if attempt is None:
        run_with_cluster(params, lambda context: _logs(context, job, selection), from_history, reads=True)
    else:
        run_and_exit(from_history_only)


async def _logs(context: ClusterContext, job: str, selection: LogSelection) -> None:
    from trainyard.cli.command.jobs import get_job, list_pods
    from trainyard.views.job_view import job_result

    if selection.follow and selection.previous:
        raise CommandError(
            "-f cannot follow the run before the current one (-p), which has ended; leave out -f or -p", INVALID
        )
    info = await get_job(context, job)
    if selection.role or selection.index is not None or selection.container:
        _check_selection(info, selection, await list_pods(context, info.job))
    await print_logs(context, [info], selection if not job_result(info.job) else replace(selection, follow=False))


def _check_selection(info: JobInfo, selection: LogSelection, pods: Sequence[Json]) -> None:
    """Raises CommandError for a role, an index or a container that the job does not have: `-f` would wait for it
    forever. Of a job that has ended it is JobNotFound: its pods may be deleted, and the history may have their logs."""
    from trainyard.core import Config, parse_job
    from trainyard.views.job_view import job_result
    from trainyard.views.replica_view import replica_view

    def refuse(missing: str, existing: Iterable[str]) -> None:
        text = f"{info.reference} has no {missing}; it has: {', '.join(dict.fromkeys(existing)) or 'none'}"
        raise (JobNotFound if job_result(info.job) else CommandError)(text, INVALID)

    job = parse_job(info.kind, info.job, Config())
    role_names = [*(role.name.lower() for role in job.roles), *(replica_view(pod).role for pod in pods)]
    if selection.role and selection.role.lower() not in role_names:
        refuse(f"role {selection.role}", role_names)
    pods = [pod for pod in pods if selection.selects(pod)]
    if selection.index is not None and not pods:
        most = info.kind.api.scale_bounds(job)[1] or 0  # an elastic job may still get replicas
        roles = [role for role in job.roles if selection.role.lower() in ("", role.name.lower())]
        if selection.index >= max(most, *(role.replicas for role in roles), 0):
            refuse(f"replica with index {selection.index}", map(_replica_range, roles))
    if selection.container and pods:
        names = [str(name) for pod in pods for name in container_names(pod["spec"])]
        if selection.container not in names:
            refuse(f"container {selection.container}", names)


def _replica_range(role: Role) -> str:
    """The replicas of a role: `worker-0 to worker-1`."""
    name = role.name.lower()
    return f"{name}-0 to {name}-{role.replicas - 1}" if role.replicas > 1 else f"{name}-0"


async def print_logs(context: ClusterContext, infos: list[JobInfo], selection: LogSelection) -> list[Json]:
    """Print the logs of these jobs. Returns the jobs in their last observed state. Raises CommandError when the output
    cannot be written, JobNotFound when the one job has no log."""
    from trainyard.cli.session.log_screen import with_screen

    printer = _follow if selection.follow else _print_current
    return await with_screen(lambda screen: printer(context, infos, selection, screen))


# --- current logs


async def _print_current(
    context: ClusterContext, infos: list[JobInfo], selection: LogSelection, screen: Screen
) -> list[Json]:
    from trainyard.cli.command.jobs import list_pods
    from trainyard.views.job_view import job_result, job_state

    for info in infos:
        shown = False
        pods = [pod for pod in await list_pods(context, info.job) if selection.selects(pod)]
        slots = _slots(pods)
        screen.align(prefix for slot in slots for prefix in _main_prefixes(slot[-1]))
        for slot in slots:
            shown = await _print_slot(context, slot, selection, screen) or shown
        if not shown:
            run = "no run before the current one" if selection.previous else "no output yet"
            text = f"{info.reference} has {run}; see: trainyard why {info.reference}"
            if suspended := job_state(info.job) == "Suspended" and not selection.previous:
                screen.note(f"{info.reference} is suspended; `trainyard resume {info.reference}` lets it run again.")
                text = f"The history of this machine has no output of {info.reference}."
            if len(infos) == 1 and (selection.previous or suspended or job_result(info.job)):
                raise JobNotFound(text, SUCCEEDED)  # the pods may be deleted, and the history may have their logs
            screen.note(text)
    return [info.job for info in infos]


def _slots(pods: list[Json]) -> list[list[Json]]:
    """The pods of each slot, oldest first; slots in order of name."""
    from trainyard.views.job_view import natural_sort_key
    from trainyard.views.replica_view import group_by_slot, replica_view

    slots = group_by_slot(pods, replica_view)
    return [slots[name] for name in sorted(slots, key=natural_sort_key)]


async def _print_slot(context: ClusterContext, pods: list[Json], selection: LogSelection, screen: Screen) -> bool:
    shown = False
    for container in container_names(pods[-1]["spec"]):
        if selection.container not in ("", container):
            continue
        if not selection.previous or _restarts(pods[-1], container):
            shown = await _print_run(context, pods[-1], container, selection, screen) or shown
        elif len(pods) > 1:  # the run before the pod's first one is that of the slot's previous pod
            shown = await _print_run(context, pods[-2], container, replace(selection, previous=False), screen) or shown
    return shown


def container_names(spec: Json) -> list[str]:
    """The containers of a pod spec in the order in which they start."""
    return [str(container["name"]) for part in ("initContainers", "containers") for container in spec.get(part) or []]


def _main_prefixes(pod: Json) -> list[str]:
    """The prefixes of the pod's containers without its init containers."""
    from trainyard.cli.output.log_prefixes import log_prefix
    from trainyard.views.replica_view import replica_view

    names = [str(container["name"]) for container in pod["spec"].get("containers") or []]
    return [log_prefix(replica_view(pod).name, name, False, len(names)) for name in names]


def _restarts(pod: Json, container: str) -> int:
    statuses = container_statuses(pod.get("status"))
    return next((status.restarts for status in statuses if status.name == container), 0)


async def _print_run(
    context: ClusterContext, pod: Json, container: str, selection: LogSelection, screen: Screen
) -> bool:
    """Print the log of one run of one container. False when the run has not begun."""
    from trainyard.cli.output.log_prefixes import log_prefix
    from trainyard.client import ApiError
    from trainyard.views.output_lines import OutputLineSplitter
    from trainyard.views.replica_view import replica_view

    init = container in [item["name"] for item in pod["spec"].get("initContainers") or []]
    prefix = log_prefix(replica_view(pod).name, container, init, len(pod["spec"].get("containers") or []))
    splitter = OutputLineSplitter()
    try:
        container_ref = (namespace_of(pod), name_of(pod), container)
        async for chunk in context.api.logs(*container_ref, previous=selection.previous, tail_lines=selection.tail):
            for line in splitter.feed(chunk):
                screen.log("" if selection.unprefixed else prefix, line)
            await screen.wait_for_space()
    except ApiError as error:
        if error.code in (400, 404):  # the container has not started, or the pod has just been deleted
            return False
        screen.note(f"{prefix}: its output cannot be shown: {error.message}")
        return True
    for line in splitter.finish():
        screen.log("" if selection.unprefixed else prefix, line)
    return True


# --- logs until the jobs have ended


async def _follow(context: ClusterContext, infos: list[JobInfo], selection: LogSelection, screen: Screen) -> list[Json]:
    from trainyard.cli.session.job_watch import JobWatch
    from trainyard.views.job_view import JobView

    view = JobView({uid_of(info.job): info.job for info in infos})
    watch = JobWatch(context.api, screen, view, selection)
    try:
        watch.start([(info.gvk, info.namespace) for info in infos])
        await watch.wait_until(watch.all_ended)
        await watch.wait_until_pods_current()
        await watch.logs.finish(ended_pods_only=True)
        return list(view.jobs.values())
    finally:
        await watch.stop()
