"""`trainyard logs JOB`: the logs of all replicas of a job, merged, or of one replica.

Rules:
- Every line is prefixed with its replica, unless --role and --index select one replica: its log is printed unchanged.
- Without -f: the current logs, replica by replica, of the newest pod of each slot; with -p of the run before.
- With -f: until the job has ended, and then to the last line of the ended containers.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from trainyard.cli import options
from trainyard.cli.cluster_command import ClusterContext, CommandError, JobNotFound, run_and_exit, run_with_cluster
from trainyard.cli.codes import INVALID, READER_GONE, SUCCEEDED, UNAVAILABLE
from trainyard.cli.completion import job_names
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.labels import OWNER
from trainyard.objects.structs import replace

if TYPE_CHECKING:
    from trainyard.cli.jobs import JobInfo
    from trainyard.cli.screen import Screen

LAST_LINES = 10.0  # timeout in seconds for the last lines of ended containers


class LogSelection(msgspec.Struct, frozen=True):
    """The options of `logs`: which containers' logs are printed, and how much of each."""

    follow: bool = False
    role: str = ""
    index: int | None = None
    previous: bool = False
    tail: int | None = None
    container: str = ""
    prefix: bool = False  # prefix the lines even if role and index select one replica
    silent: bool = False  # print no logs, only wait until the jobs have ended

    @property
    def unprefixed(self) -> bool:
        return bool(self.role) and self.index is not None and not self.prefix

    def selects(self, pod: Json) -> bool:
        from trainyard.cli.replica_view import index_of, replica

        index = index_of(pod)
        role = not self.role or replica(pod).role == self.role.lower()
        return role and (self.index is None or index == str(self.index))


@click.command()
@click.argument("job", shell_complete=job_names)
@options.cluster
@click.option("-f", "--follow", is_flag=True, help="Until the job has ended.")
@click.option("--role", default="", metavar="ROLE", help="Only the replicas of this role.")
@click.option("--index", type=click.IntRange(min=0), metavar="I", help="Only the replica of this number.")
@click.option("-p", "--previous", is_flag=True, help="The run before the present one.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each.")
@click.option("-c", "--container", default="", metavar="NAME", help="Only this container of each pod.")
@click.option("--attempt", type=click.IntRange(min=0), metavar="N", help="All runs of this attempt, from the history.")
def logs(job: str, attempt: int | None, **params: Any) -> None:
    """Show the output of a job's replicas. Of a job that is gone it is read from the history of this machine.

    Examples: trainyard logs -f mnist, trainyard logs mnist --role worker --index 0 -p --tail 20
    """
    names = ("follow", "role", "index", "previous", "tail", "container")
    wanted = LogSelection(**{name: params.pop(name) for name in names})

    def from_history() -> bool:
        from trainyard.cli.history_logs import print_recorded_logs

        return print_recorded_logs(job, params["namespace"], wanted, attempt)

    def from_history_only() -> None:
        if not from_history():
            raise CommandError(f"no job {job} is in the history of this machine; see: trainyard history")

    if attempt is None:
        run_with_cluster(params, lambda here: _logs(here, job, wanted), from_history)
    else:
        run_and_exit(from_history_only)


async def _logs(here: ClusterContext, job: str, wanted: LogSelection) -> None:
    from trainyard.cli.jobs import get_job, list_pods
    from trainyard.cli.view import job_outcome

    if wanted.follow and wanted.previous:
        raise CommandError("-f and -p do not go together: what has ended says nothing more", INVALID)
    info = await get_job(here, job)
    if wanted.role:
        _check_role(info, wanted, await list_pods(here, info.job))
    await print_logs(here, [info], wanted if not job_outcome(info.kind, info.job) else replace(wanted, follow=False))


def _check_role(info: JobInfo, wanted: LogSelection, pods: Sequence[Json]) -> None:
    from trainyard.cli.replica_view import replica
    from trainyard.core import Config, parse_job

    roles = [role.name.lower() for role in parse_job(info.kind, info.job, Config()).roles]
    roles = list(dict.fromkeys([*roles, *(replica(pod).role for pod in pods)]))
    if wanted.role.lower() not in roles:
        raise CommandError(f"{info.reference} has no role {wanted.role}; it has: {', '.join(roles) or 'none'}", INVALID)


async def print_logs(here: ClusterContext, infos: list[JobInfo], selection: LogSelection) -> list[Json]:
    """Print the logs of these jobs. Returns the jobs in their last observed state. Raises CommandError when the output
    cannot be written, JobNotFound when the one job has no log."""
    from trainyard.cli.screen import Descriptors, Screen, wants_colour

    reader_gone = asyncio.Event()
    screen = Screen(Descriptors(1, 1, 2), wants_colour(os.isatty(1), dict(os.environ)), False, reader_gone.set)
    try:
        work = asyncio.ensure_future(
            _follow(here, infos, selection, screen)
            if selection.follow
            else _print_current(here, infos, selection, screen)
        )
        reader_gone_waiter = asyncio.ensure_future(reader_gone.wait())
        try:
            await asyncio.wait({work, reader_gone_waiter}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise CommandError("", READER_GONE if screen.output_error is None else UNAVAILABLE)
            return work.result()
        finally:
            for task in (work, reader_gone_waiter):
                task.cancel()
            await asyncio.gather(work, reader_gone_waiter, return_exceptions=True)
    finally:
        await screen.close()


# --- current logs


async def _print_current(
    here: ClusterContext, infos: list[JobInfo], wanted: LogSelection, screen: Screen
) -> list[Json]:
    from trainyard.cli.jobs import list_pods
    from trainyard.cli.view import job_outcome, job_state

    for info in infos:
        shown = False
        pods = [pod for pod in await list_pods(here, info.job) if wanted.selects(pod)]
        for slot in _slots(pods):
            shown = await _print_slot(here, slot, wanted, screen) or shown
        if not shown:
            run = "no run before the present one" if wanted.previous else "no output yet"
            text = f"{info.reference} has {run}; see: trainyard why {info.reference}"
            if suspended := job_state(info.job) == "Suspended" and not wanted.previous:
                screen.note(f"{info.reference} is suspended; `trainyard resume {info.reference}` lets it run again.")
                text = "It wrote nothing that the history of this machine has."
            if len(infos) == 1 and (wanted.previous or suspended or job_outcome(info.kind, info.job)):
                raise JobNotFound(text, SUCCEEDED)  # the pods may be deleted, and the history may have their logs
            screen.note(text)
    return [info.job for info in infos]


def _slots(pods: list[Json]) -> list[list[Json]]:
    """The pods of each slot, oldest first; slots in order of name."""
    from trainyard.cli.replica_view import replica
    from trainyard.cli.view import natural_sort_key

    slots: dict[str, list[Json]] = {}
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        slots.setdefault(replica(pod).name, []).append(pod)
    return [slots[name] for name in sorted(slots, key=natural_sort_key)]


async def _print_slot(here: ClusterContext, pods: list[Json], wanted: LogSelection, screen: Screen) -> bool:
    shown = False
    for container in _container_names(pods[-1], wanted):
        if not wanted.previous or _restarts(pods[-1], container):
            shown = await _print_run(here, pods[-1], container, wanted, screen) or shown
        elif len(pods) > 1:  # the run before the pod's first one is that of the slot's previous pod
            shown = await _print_run(here, pods[-2], container, replace(wanted, previous=False), screen) or shown
    return shown


def _container_names(pod: Json, wanted: LogSelection) -> list[str]:
    names = [
        container["name"] for part in ("initContainers", "containers") for container in pod["spec"].get(part) or []
    ]
    return [name for name in names if wanted.container in ("", name)]


def _restarts(pod: Json, container: str) -> int:
    statuses = container_statuses(pod.get("status"))
    return next((status.restarts for status in statuses if status.name == container), 0)


async def _print_run(here: ClusterContext, pod: Json, container: str, wanted: LogSelection, screen: Screen) -> bool:
    """Prints the log of one run of one container. False when the run has not begun."""
    from trainyard.cli.replica_view import replica
    from trainyard.cli.screen import OutputLineSplitter
    from trainyard.client import ApiError

    single = len(pod["spec"].get("containers") or []) == 1 and not pod["spec"].get("initContainers")
    prefix = replica(pod).name if single else f"{replica(pod).name}/{container}"
    splitter = OutputLineSplitter()
    try:
        container_ref = (namespace_of(pod), name_of(pod), container)
        async for chunk in here.api.logs(*container_ref, previous=wanted.previous, tail_lines=wanted.tail):
            for line in splitter.feed(chunk):
                screen.log("" if wanted.unprefixed else prefix, line)
            await screen.wait_for_space()
    except ApiError as error:
        if error.code not in (400, 404):  # the container has not started, or the pod has just been deleted
            screen.note(f"{prefix}: its output cannot be shown: {error.message}")
        return False
    for line in splitter.finish():
        screen.log("" if wanted.unprefixed else prefix, line)
    return True


# --- logs until the jobs have ended


async def _follow(here: ClusterContext, infos: list[JobInfo], wanted: LogSelection, screen: Screen) -> list[Json]:
    watcher = Watcher(here, infos, wanted, screen)
    try:
        return await watcher.run()
    finally:
        await watcher.stop()


class Watcher:
    """Watches jobs and their pods, and follows the pods' logs, until every job has ended."""

    def __init__(self, here: ClusterContext, found: list[JobInfo], wanted: LogSelection, screen: Screen) -> None:
        from trainyard.cli.follow import LogFollowers
        from trainyard.cli.view import JobView
        from trainyard.cli.watches import Watches

        self._here, self._infos, self._wanted, self._screen = here, found, wanted, screen
        self._board = JobView({uid_of(info.job): info.job for info in found})
        self._feeds = Watches(here.api)
        self._job_stores: list[Any] = []
        self._logs = LogFollowers(here.api, screen, self._label, wanted.tail, wanted.container)

    def _label(self, pod: Json) -> str:
        from trainyard.cli.replica_view import replica

        return "" if self._wanted.unprefixed else self._board.label(replica(pod))

    async def run(self) -> list[Json]:
        from trainyard.cli.watches import watch_target
        from trainyard.objects.resources import POD

        for gvk, namespace in dict.fromkeys((info.gvk, info.namespace) for info in self._infos):
            self._job_stores.append(self._feeds.watch(watch_target(gvk, namespace), self._handle_job))
        if not self._wanted.silent:
            for namespace in dict.fromkeys(info.namespace for info in self._infos):
                self._feeds.watch(watch_target(POD, namespace, OWNER), self._handle_pod)
        while not (self._feeds.synced and self._all_ended()):
            await self._feeds.wait_for_change()
        await self._logs.finish(True, LAST_LINES)
        return [self._board.jobs[uid_of(info.job)] for info in self._infos]

    def _handle_job(self, before: Json | None, after: Json | None) -> None:
        if after is not None and uid_of(after) in self._board.jobs:
            self._board.update_job(after)

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        if pod is None or not self._wanted.selects(pod):
            return
        if (pod["metadata"].get("labels") or {}).get(OWNER) not in self._board.jobs:
            return
        self._board.update_pod(pod, time.time())
        if after is not None:
            self._logs.update_pod(after)
        else:
            self._logs.delete_pod(pod)

    def _all_ended(self) -> bool:
        """True when every job has ended or is deleted."""
        from trainyard.cli.view import job_outcome

        present = {uid_of(job) for store in self._job_stores for job in store}
        jobs = self._board.jobs
        return all(
            job_outcome(info.kind, jobs[uid]) or uid not in present for info in self._infos if (uid := uid_of(info.job))
        )

    async def stop(self) -> None:
        await self._logs.stop()
        await self._feeds.stop()
