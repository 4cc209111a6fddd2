"""All about one job, as the page shows it: of a job that exists from the API, of one that is gone from the history."""

from __future__ import annotations

import asyncio
import time
from operator import attrgetter
from typing import Any

import msgspec

from trainyard import kinds
from trainyard.app.evidence.facts import gather_facts
from trainyard.app.evidence.pod_metrics import read_devices, read_usages
from trainyard.app.history.recorded_job import diagnosis_of, events_of, facts_of, find_record, job_object, last_pods
from trainyard.app.history.records import HistoryRecord
from trainyard.app.job_files import in_thread
from trainyard.client import ApiClient
from trainyard.kinds import kind_of
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.objects.numbers import json_numbers
from trainyard.objects.structs import replace
from trainyard.objects.usage import DeviceUsage
from trainyard.objects.yaml_text import as_yaml
from trainyard.page.job_list import COLUMNS, recorded_row
from trainyard.page.observation import Observation
from trainyard.views.comparison import ComparedRun
from trainyard.views.device_view import device_lines
from trainyard.views.diagnosis import Facts, JobDiagnosis, diagnose
from trainyard.views.event_view import EventView
from trainyard.views.job_details import JobDetails, job_details
from trainyard.views.job_row import job_row
from trainyard.views.job_view import JobView
from trainyard.views.replica_view import ReplicaView, replica_view
from trainyard.views.tensorboard_view import TensorBoardView, tensorboard_view
from trainyard.views.timeline import Lane, timeline
from trainyard.views.usage_view import ReplicaUsage

USAGE_SECONDS = 1.9  # a Trainyard node measures every 2 seconds
SECONDS_PER_REPLICA = 0.005  # between two pages of a job, for each replica: what a page takes grows with them
NO_DEVICES_SECONDS = 30.0
KEPT_SECONDS = 60.0  # a page or a usage that nobody has asked for is dropped


class JobPage(msgspec.Struct, frozen=True):
    """One job. `job`: its details without replicas and events, which have fields of their own."""

    job: JobDetails
    findings: list[Json]  # those of `trainyard why -o json`
    timeline: list[Lane]
    ranks: dict[str, list[Any]]
    events: tuple[EventView, ...]
    forbidden: tuple[str, ...]  # what the person may not read of it: "list events"
    tensorboard: TensorBoardView | None  # None where there is none, and in the history


RANK_COLUMNS = {
    "replica": "name",
    "role": "role",
    "index": "index",
    "state": "state",
    "restarts": "restarts",
    "attempt": "attempt",
    "node": "node",
    "reason": "reason",
    "exitCode": "exit_code",
    "message": "blocked",
    "pod": "pod",
    "started": "started",
    "ended": "ended_at",
}


def rank_columns(replicas: list[ReplicaView]) -> dict[str, list[Any]]:
    """The replicas by column: an array per column is a third of the bytes of an object per replica."""
    columns = {column: list(map(attrgetter(name), replicas)) for column, name in RANK_COLUMNS.items()}
    peaks = [replica.peak_device_memory or None for replica in replicas]
    return columns | ({"gpuPeak": peaks} if any(peaks) else {})


USAGE_COLUMNS = {
    "cpu": "cpu",
    "memory": "memory",
    "peak": "peak_memory",
    "step": "step",
    "stepsPerSecond": "steps_per_second",
    "lag": "lag",
    "metrics": "metrics",
    "stoppedPid": "stopped_pid",
    "gpu": "device_utilization",
    "gpuMemory": "device_memory",
    "gpuPeak": "peak_device_memory",
}


def usage_columns(replicas: list[ReplicaView], usages: list[ReplicaUsage]) -> dict[str, list[Any]]:
    """The usage of replicas by column, in the order of `rank_columns`; without the columns of which nothing is
    known."""
    if not usages:
        return {}
    by_name = {usage.replica: usage for usage in usages}
    in_order = [by_name.get(replica.name) for replica in replicas]
    columns = {column: [getattr(usage, name, None) for usage in in_order] for column, name in USAGE_COLUMNS.items()}
    columns["metrics"] = [usage and json_numbers(usage.metrics) for usage in in_order]
    # A GPU that does nothing is known, too.
    return {column: values for column, values in columns.items() if any(values) or _is_of_gpus(column, values)}


def _is_of_gpus(column: str, values: list[Any]) -> bool:
    return column in ("gpu", "gpuMemory") and any(value is not None for value in values)


class JobPages:
    """The pages of jobs. A page that nothing has changed since is not made again: several tabs share it."""

    def __init__(self, api: ApiClient | None, observation: Observation | None, has_history: bool) -> None:
        self._api, self._observation, self._has_history = api, observation, has_history
        self._made: dict[str, tuple[int, float, asyncio.Task[JobPage]]] = {}  # by uid: revision, time, page
        self._ranks: dict[str, tuple[tuple[int, int], list[ReplicaUsage], bytes]] = {}  # by uid: version, usages, frame
        self._runs: dict[str, tuple[HistoryRecord, float, tuple[Json, ComparedRun]]] = {}  # by uid: record, time, run
        self._devices: tuple[float, asyncio.Task[list[DeviceUsage]]] | None = None  # when they were read
        self._usages: dict[str, tuple[float, asyncio.Task[list[ReplicaUsage]]]] = {}  # by uid: time, usages

    async def page(self, job_uid: str, max_age: float = 1.0) -> JobPage | None:
        """The page of the job with that uid; None if it is not known. A page of the same revision that is at most
        `max_age` seconds old is used again: events and logs change without one. Any page is used again for
        SECONDS_PER_REPLICA times the number of replicas, however many tabs ask for it."""
        job = self._observation.view.jobs.get(job_uid) if self._observation else None
        if self._observation is None or self._api is None or job is None:
            return await in_thread(self._recorded, job_uid)
        revision, now = self._observation.revision(job_uid), time.monotonic()
        cached = self._made.get(job_uid)
        shortest = SECONDS_PER_REPLICA * len(self._observation.view.slots(job_uid))
        if cached is None or now - cached[1] > (max(max_age, shortest) if cached[0] == revision else shortest):
            cached = revision, now, asyncio.ensure_future(self._live(self._api, self._observation, job))
            self._made = {uid: kept for uid, kept in self._made.items() if now - kept[1] < KEPT_SECONDS}
            self._made[job_uid] = cached
        return await asyncio.shield(cached[2])

    async def manifest(self, job_uid: str) -> str | None:
        """The job as YAML, without managedFields; None if it is not known."""
        job = self._observation.view.jobs.get(job_uid) if self._observation else None
        if job is None:
            facts = await in_thread(lambda: (record := self.record(job_uid)) and facts_of(record))
            job = facts.job if facts else None
        if job is None:
            return None
        metadata = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
        return as_yaml({**job, "metadata": metadata})

    async def live_ranks(self, job_uid: str) -> bytes | None:
        """The frame `ranks` of a job that exists, encoded once for all tabs; None for another job."""
        observation = self._observation
        if observation is None or job_uid not in observation.view.jobs:
            return None
        usages = await self.usages(job_uid)
        version = observation.revision(job_uid), id(usages)
        if job_uid not in self._ranks or self._ranks[job_uid][0] != version:
            slots = observation.view.slots(job_uid)
            columns = rank_columns(slots) | usage_columns(slots, usages)
            frame = msgspec.json.encode({"type": "ranks", "uid": job_uid, "columns": columns})
            self._ranks = {uid: cached for uid, cached in self._ranks.items() if uid in self._usages}
            self._ranks[job_uid] = version, usages, frame
        return self._ranks[job_uid][2]

    async def usages(self, job_uid: str) -> list[ReplicaUsage]:
        """The usage of the replicas of a job that exists, at most USAGE_SECONDS old; [] if nobody measures it."""
        view = self._observation.view if self._observation else None
        if self._api is None or view is None or job_uid not in view.jobs:
            return []
        read = self._usages.get(job_uid)
        if read is None or time.monotonic() - read[0] > USAGE_SECONDS:
            read = time.monotonic(), asyncio.ensure_future(read_usages(self._api, view.jobs[job_uid], view))
            self._usages = {uid: kept for uid, kept in self._usages.items() if read[0] - kept[0] < KEPT_SECONDS}
            self._usages[job_uid] = read
        return await asyncio.shield(read[1])

    async def device_lines(self) -> list[str]:
        """The GPUs of the nodes that Trainyard runs, and who uses them, at most USAGE_SECONDS old; where there are
        none, at most NO_DEVICES_SECONDS."""
        if self._api is None:
            return []
        read, now = self._devices, time.monotonic()
        is_done = read is not None and read[1].done()
        most = USAGE_SECONDS if read is not None and (not is_done or read[1].result()) else NO_DEVICES_SECONDS
        if read is None or (is_done and now - read[0] > most):
            read = self._devices = now, asyncio.ensure_future(read_devices(self._api))
        return device_lines(await asyncio.shield(read[1]))

    async def compared(self, job_uid: str) -> tuple[Json, ComparedRun] | None:
        """A job and its run for a comparison, without metrics; None if it is not known."""
        observation = self._observation
        if observation is None or job_uid not in observation.view.jobs:
            return await in_thread(self._recorded_run, job_uid)
        usages = await self.usages(job_uid)
        job = observation.view.jobs.get(job_uid)
        if job is None:  # deleted meanwhile
            return await in_thread(self._recorded_run, job_uid)
        slots = observation.view.slots(job_uid)
        row = job_row(observation.view, job_uid, slots)
        peaks = [*(usage.peak_memory or 0 for usage in usages), *(slot.peak_memory for slot in slots)]
        return job, ComparedRun(
            uid=job_uid,
            namespace=row.namespace,
            kind=row.kind,
            name=row.name,
            state=row.state,
            restarts=row.restarts,
            created=row.created,
            started=row.started,
            ended_at=row.ended_at,
            peak_memory=max(peaks, default=0) or None,
        )

    def record(self, job_uid: str) -> HistoryRecord | None:
        """The record of a job that this machine has run. Reads files."""
        return find_record(job_uid) if self._has_history else None

    async def _live(self, api: ApiClient, observation: Observation, job: Json) -> JobPage:
        kind = kind_of(job)
        if kind is None:
            known = ", ".join(dict.fromkeys(kind.gvk.kind for kind in kinds.ALL))
            type_text = f"{job['kind']} ({job.get('apiVersion')}) is not a kind of job"
            raise ValueError(f"{namespace_of(job)}/{name_of(job)}: {type_text}; the kinds are: {known}")
        usages = await self.usages(uid_of(job))
        pods, view = sorted(observation.pods(uid_of(job)), key=name_of), observation.present_view(job)
        present = {slot.name for slot in view.slots(uid_of(job))}
        usages = [usage for usage in usages if usage.replica in present]
        facts = await gather_facts(api, kind, job, pods=pods, usages=usages)
        record = await in_thread(self.record, uid_of(job))
        return _page(facts, diagnose(facts), record.pods if record else [], view=view if pods else None, is_live=True)

    def _recorded(self, job_uid: str) -> JobPage | None:
        record = self.record(job_uid)
        facts = facts_of(record) if record else None
        if record is None or facts is None:
            return None
        facts = replace(facts, events=tuple(events_of(record)))
        return _page(facts, diagnosis_of(record, facts), record.pods, record.ended_at, is_live=False)

    def _recorded_run(self, job_uid: str) -> tuple[Json, ComparedRun] | None:
        """As `compared`, of a record. A record that has not changed is not read again: 1,000 pods take 0.1 s."""
        record, now = self.record(job_uid), time.monotonic()
        if record is None:
            return None
        known = self._runs.get(job_uid)
        run = known[2] if known and known[0] == record else _run_of(record)
        if run is not None:
            kept = {uid: entry for uid, entry in self._runs.items() if now - entry[1] < KEPT_SECONDS}
            self._runs = kept | {job_uid: (record, now, run)}
        return run


def _run_of(record: HistoryRecord) -> tuple[Json, ComparedRun] | None:
    job = job_object(record)
    kind = kind_of(job) if job else None
    if job is None or kind is None:
        return None
    row = dict(zip(COLUMNS, recorded_row(record), strict=True))
    names = ("uid", "namespace", "kind", "name", "state", "restarts", "created", "started")
    peaks = [replica_view(pod).peak_memory for pod in last_pods(record, kind, job)]
    return job, ComparedRun(
        **{name: row[name] for name in names}, ended_at=row["ended"], peak_memory=max(peaks, default=0) or None
    )


def _page(
    facts: Facts,
    diagnosis: JobDiagnosis,
    recorded: list[Json],
    cut_off: float | None = None,
    view: JobView | None = None,
    *,
    is_live: bool,
) -> JobPage:
    details = job_details(facts.job, facts.pods, facts.children, facts.events, facts.now, view)
    lanes = timeline(facts.pods, recorded, facts.kind.roles.container, cut_off)
    return JobPage(
        job=replace(details, replicas=(), events=()),
        findings=diagnosis.to_json()["findings"],
        timeline=lanes,
        ranks=rank_columns(list(details.replicas)),
        events=details.events,
        forbidden=facts.refused,
        tensorboard=tensorboard_view(facts.job, facts.pods) if is_live else None,
    )
