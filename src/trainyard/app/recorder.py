"""The recorder of the history: watches jobs, their pods and their events, and writes what became of them (history.py).

Rules:
- A client of the API like any other. It only reads, and a job never waits for it: files are written by a thread, many
  changes at once.
- The node asks it where the logs of a pod are to be kept, and writes them there itself: a kill loses none of them.
- A disk that is full or a folder that cannot be written is said once. It stops no job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from trainyard import kinds
from trainyard.app.history import (
    ID_LENGTH,
    RECORDING,
    RESULT,
    RecorderLock,
    folder_name,
    job_folders,
    pod_logs,
    read_record,
    write_file,
)
from trainyard.app.job_record import JobRecord, result_of
from trainyard.app.retention import Limits, mark_interrupted, prune
from trainyard.client import Api, ApiError, Selection
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import Reflector, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.objects import (
    GVK,
    Json,
    encode,
    format_time,
    labels_of,
    name_of,
    namespace_of,
    parse_time,
    revision_of,
    uid_of,
)
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import EVENT, POD

log = logging.getLogger(__name__)

_FIRST_WRITE = 0.1  # seconds after a change
_BETWEEN_WRITES = 1.0  # while no job ends
_SHARE = 20  # writing takes at most one part in so many of the time
_CATCH_UP = 2.0  # seconds at the end, for what the watches have not told yet
_SYNC = 5.0
_EARLY_EVENTS = 500  # objects that nobody has told us of yet whose events are remembered
_EVENTS_OF_ONE = 20  # of each of them
_PRUNE_EVERY = 60.0


class HistoryOptions(msgspec.Struct, frozen=True):
    """`where` names the cluster in the history: "run", or the background cluster's name."""

    root: Path
    where: str
    logs: Path | None = None  # a folder of the user's own choice for the logs
    limits: Limits = msgspec.field(default_factory=Limits)


class HistoryRecorder:
    """Begin with `start`, end with `close`. Raises nothing for a disk that cannot be written: it says so."""

    def __init__(self, options: HistoryOptions, say: Callable[[str], object], now: Callable[[], float]) -> None:
        self._options, self._say, self._now = options, say, now
        self._root = options.root
        self._records: dict[str, JobRecord] = {}  # by the job's uid
        self._about: dict[str, JobRecord] = {}  # by the uid of a job, of its pods, and of what made the pods
        self._early: OrderedDict[str, dict[str, Json]] = OrderedDict()  # events, by the uid of what they are about
        self._folders: dict[str, Path] = {}  # by the id in their name
        self._changed: dict[str, JobRecord] = {}
        self._news = asyncio.Event()  # something is to be written
        self._end_seen = asyncio.Event()  # a job has ended or is deleted: that is asked for at once
        self._told = asyncio.Event()  # a watch has told something
        self._writing = asyncio.Lock()
        self._said: set[str] = set()
        self._stores: dict[GVK, Store[Json]] = {}
        self.tasks = TaskSupervisor("history", say)
        self._synced = False
        self._pruned = 0.0
        self._api: Api | None = None
        self._lock: RecorderLock | None = None
        try:
            self._lock = RecorderLock(self._root)
        except OSError as error:
            self._failed(error)
        self._folders = {folder.name.rpartition("-")[2]: folder for folder in job_folders(self._root)}

    @property
    def _name(self) -> str:
        return self._lock.name if self._lock else ""

    def logs_of(self, jobs: Iterable[str]) -> Path | None:
        """Where the logs of these jobs (uids) are: the folder of one job, or the one around those of several."""
        folders = [record.logs for uid in jobs if (record := self._records.get(uid)) and record.logs.is_dir()]
        return Path(os.path.commonpath(folders)) if folders else None

    # The node's question.

    def log_folder(self, pod: Json) -> Path | None:
        """Where the logs of a pod are to be kept: made, when this returns. None for a pod without a job, or when there
        is no place."""
        live = (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        record = self._record_of(pod, live)
        if record is None:
            return None
        folder = record.logs / pod_logs(pod)
        try:
            if live:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            self._failed(error)
            return None
        return folder

    # From start to end.

    async def start(self, api: Api) -> None:
        """Watch. Returns when what there is has been told, or soon after."""
        self._api = api
        if self._lock:
            await self._in_thread(mark_interrupted, self._root)
        for kind in kinds.ALL:
            self._watch(WatchTarget(kind.gvk, optional=True), self._job_seen)
        self._watch(WatchTarget(POD, selection=Selection(OWNER)), self._pod_seen)
        self._watch(WatchTarget(EVENT, optional=True), self._event_seen)
        self.tasks.start("write records", self._keep_writing)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SYNC):
                await self._until(lambda: all(store.synced for store in self._stores.values()))
        self._synced = True

    async def _until(self, true: Callable[[], bool]) -> None:
        """Wait for the watches."""
        while not true():
            self._told.clear()
            await self._told.wait()

    def _watch(self, source: WatchTarget, seen: Callable[[Json | None, Json | None], None]) -> None:
        store: Store[Json] = Store(dict_adapter(api_version=source.gvk.api_version, kind=source.gvk.kind))
        self._stores[source.gvk] = store

        def apply(said: StoreEvent[Json]) -> None:
            for change in store.apply(said):
                try:
                    seen(change.before, change.after)
                except Exception:  # a bug of ours must not end the watch
                    log.exception("a bug in the recorder of the history")
            self._told.set()

        if self._api is not None:
            self.tasks.start(f"watch {source.name}", Reflector(self._api, source, store.adapter, apply).run)

    async def close(self, kill: bool = False, message: str = "") -> None:
        """Write what there is. `message` says why jobs that have not ended will not."""
        if not kill:
            with contextlib.suppress(ApiError, TimeoutError):
                async with asyncio.timeout(_CATCH_UP):
                    await self._catch_up()
        # A thread cannot be cancelled: what it writes must not come after what is written last.
        async with self._writing:
            self.tasks.cancel_all()
        await self.tasks.stop()
        for uid, record in self._records.items():
            if not record.over:
                record.interrupt(self._now(), message or "the cluster was stopped before its end")
                self._changed[uid] = record
        await self._write()
        if self._lock:
            await self._in_thread(prune, self._root, self._options.limits)
            self._lock.close()
            self._lock = None

    async def _catch_up(self) -> None:
        """Until the watches have told what is true now. Nobody writes any more when this is called."""
        for gvk, store in self._stores.items():
            if self._api is None or not (len(store) or gvk == EVENT):
                continue
            page = await self._api.list(gvk, "", OWNER if gvk == POD else "")
            listed = _versions(page.get("items") or [])
            await self._until(lambda: _versions(store) == listed)  # noqa: B023  (awaited in the same turn)

    # What the watches tell.

    def _job_seen(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        if job is None:
            return
        gone = before is not None and (after is None or uid_of(after) != uid_of(before))
        if before is not None and gone and (record := self._records.get(uid_of(before))):
            record.delete_job(self._now())
            self._end_seen.set()
            self._mark(uid_of(before), record)
        if after is None:
            return
        known = uid_of(after) in self._records or uid_of(after)[:ID_LENGTH] in self._folders
        if not known and not self._synced and result_of(after)[0]:
            return  # it ended before there was a history, or has been removed from it
        created = parse_time(after["metadata"].get("creationTimestamp"))
        if record := self._record(uid_of(after), namespace_of(after), name_of(after), created, True):
            record.see_job(after, self._now())
            if result_of(after)[0]:
                self._end_seen.set()
            self._mark(uid_of(after), record)

    def _pod_seen(self, before: Json | None, after: Json | None) -> None:
        if before is not None and (after is None or uid_of(after) != uid_of(before)):
            self._see_pod(before, gone=True)
        if after is not None:
            self._see_pod(after, gone=False)

    def _see_pod(self, pod: Json, gone: bool) -> None:
        live = not gone and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        record = self._record_of(pod, live)
        if record is None:
            return
        for uid in (uid_of(pod), *(str(owner.get("uid")) for owner in pod["metadata"].get("ownerReferences") or [])):
            self._belongs(uid, record)
        for uid in record.see_pod(pod, gone):
            self._about.pop(uid, None)
        self._mark(str(labels_of(pod).get(OWNER)), record)

    def _event_seen(self, before: Json | None, after: Json | None) -> None:
        if after is None:
            return
        uid = str((after.get("involvedObject") or {}).get("uid") or "")
        if record := self._about.get(uid):
            record.see_event(after)
            self._mark(str(record.data["uid"]), record)
        elif uid:
            events = self._early.setdefault(uid, {})
            events[uid_of(after)] = after
            if len(events) > _EVENTS_OF_ONE:
                del events[next(iter(events))]
            if len(self._early) > _EARLY_EVENTS:
                self._early.popitem(last=False)

    def _belongs(self, uid: str, record: JobRecord) -> None:
        """Events about that uid are the job's."""
        self._about[uid] = record
        for event in self._early.pop(uid, {}).values():
            record.see_event(event)

    # Records.

    def _record_of(self, pod: Json, live: bool) -> JobRecord | None:
        """The record of the job that a pod belongs to. A pod that lives may be seen before its job is."""
        uid, owners = str(labels_of(pod).get(OWNER) or ""), pod["metadata"].get("ownerReferences") or []
        if not uid or not owners:
            return None
        return self._record(uid, namespace_of(pod), str(owners[0].get("name") or ""), None, live)

    def _record(self, uid: str, namespace: str, name: str, created: float | None, new: bool) -> JobRecord | None:
        """`new`: make one, if there is none."""
        if uid in self._records:
            return self._records[uid]
        folder = self._folders.get(uid[:ID_LENGTH])
        if folder is not None and (known := read_record(folder)) is not None:
            record = JobRecord.loaded(folder, known.data, self._options.limits)
        elif new:
            made = self._make(uid, namespace, name, self._now() if created is None else created)
            if made is None:
                return None
            record = made
        else:
            return None
        self._records[uid] = record
        self._belongs(uid, record)
        return record

    def _make(self, uid: str, namespace: str, name: str, created: float) -> JobRecord | None:
        """A folder for a job that is new. None when there is no place for it."""
        folder = self._root / folder_name(uid, namespace, name, created)
        logs = self._own_folder(folder.name)
        data: Json = {"uid": uid, "namespace": namespace, "name": name, "where": self._options.where}
        data |= {"created": format_time(created), "logs": str(logs or ""), "result": ""}
        if self._lock is None and logs is None:
            return None  # there is no place, which has been said
        try:
            if self._lock is not None:
                folder.mkdir(mode=0o700, exist_ok=True)
                write_file(folder / RECORDING, f"{self._name}\n")
                write_file(folder / RESULT, encode({**data, "pods": []}).decode())
        except OSError as error:
            self._failed(error)
            if logs is None:
                return None
        self._folders[uid[:ID_LENGTH]] = folder
        return JobRecord(folder, data, self._options.limits)

    def _own_folder(self, name: str) -> Path | None:
        """A new folder in the one that --logs-dir named; what is there already is not touched."""
        if self._options.logs is None:
            return None
        for number in range(1, 100):
            path = self._options.logs / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                self._failed(error)
                return None
            return path
        return None

    # Writing.

    def _mark(self, uid: str, record: JobRecord) -> None:
        self._changed[uid] = record
        self._news.set()

    async def _keep_writing(self) -> None:
        pause = share = 0.0
        while True:
            await self._news.wait()
            await asyncio.sleep(max(_FIRST_WRITE, share))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._end_seen.wait()
            self._news.clear()
            self._end_seen.clear()
            began = time.monotonic()
            ended = await self._write()
            pause, share = _BETWEEN_WRITES, _SHARE * (time.monotonic() - began)
            if ended and time.monotonic() - self._pruned > _PRUNE_EVERY:
                self._pruned = time.monotonic()
                await self._in_thread(prune, self._root, self._options.limits)

    async def _write(self) -> bool:
        """Write what has changed; whether a job has come to its end with it."""
        async with self._writing:
            changed, self._changed = self._changed, {}
            snapshots = [record.snapshot(self._name) for record in changed.values()]
            for uid, record in changed.items():
                if record.complete:
                    self._forget(uid, record)
            for snapshot in snapshots:
                await self._in_thread(snapshot.write)
            return any(record.over for record in changed.values())

    def _forget(self, uid: str, record: JobRecord) -> None:
        """The job is gone, and all of it is written."""
        self._records.pop(uid, None)
        for about in [about for about, known in self._about.items() if known is record]:
            del self._about[about]

    async def _in_thread(self, work: Callable[..., object], *words: object) -> None:
        try:
            await asyncio.to_thread(work, *words)
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        """Said once for each cause."""
        what = (error.strerror or str(error)).lower()
        if what not in self._said:
            self._said.add(what)
            fix = "Free some space, or set XDG_STATE_HOME to a folder that you can write"
            self._say(f"history: {error.filename or self._root}: {what}; not everything is kept. {fix}")


def _versions(objects: Iterable[Json]) -> set[tuple[str, str]]:
    return {(uid_of(obj), revision_of(obj)) for obj in objects}
