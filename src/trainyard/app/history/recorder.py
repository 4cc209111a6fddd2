"""The recorder of the history: watches jobs, their pods and their events, and writes a record of each job (records.py).

Rules:
- The recorder is a client of the API like any other. It only reads, and no job waits for it: a thread writes the files,
  many changes at once.
- The node calls `log_folder` for the folder of a pod's logs, and writes the logs there itself: a kill loses none.
- A full disk or a folder that cannot be written is reported once per cause. It stops no job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from trainyard import kinds
from trainyard.app.history.job_record import JobRecord, result_of
from trainyard.app.history.record_index import HistoryOptions, RecordIndex
from trainyard.app.history.records import RecorderLock
from trainyard.app.history.retention import mark_interrupted, prune
from trainyard.client import ApiClient, ApiError, Selectors
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import Reflector, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.objects import (
    GVK,
    Json,
    labels_of,
    name_of,
    namespace_of,
    parse_time,
    resource_version_of,
    uid_of,
)
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import EVENT, POD
from trainyard.views.recorded import pod_log_folder

log = logging.getLogger(__name__)

_FIRST_WRITE = 0.1  # seconds from a change to its write
_BETWEEN_WRITES = 1.0  # seconds between two writes, while no job ends
_WRITE_PAUSE_FACTOR = 20  # pause after a write / its duration: writing takes at most 1/20 of the time
_CATCH_UP = 2.0  # seconds at the end, for the changes that the watches have not delivered yet
_SYNC_TIMEOUT = 5.0  # seconds in which `start` waits for the first lists
_PRUNE_INTERVAL = 60.0  # seconds


class HistoryRecorder:
    """Starts with `start`, ends with `close`. An error of the disk is reported by `say` and never raised."""

    def __init__(self, options: HistoryOptions, say: Callable[[str], object], now: Callable[[], float]) -> None:
        self._options, self._say, self._now = options, say, now
        self._root = options.root
        self._changed: dict[str, JobRecord] = {}
        self._write_due = asyncio.Event()  # a record has changed
        self._job_finished = asyncio.Event()  # a job has ended or was deleted: users look at its record at once
        self._watch_advanced = asyncio.Event()  # a store has changed
        self._write_lock = asyncio.Lock()
        self._reported: set[str] = set()
        self._stores: dict[GVK, Store[Json]] = {}
        self.tasks = TaskSupervisor("history", say)
        self._synced = False
        self._last_prune = 0.0
        self._api: ApiClient | None = None
        self._lock: RecorderLock | None = None
        try:
            self._lock = RecorderLock(self._root)
        except OSError as error:
            self._report(error)
        self._records = RecordIndex(options, self._lock.name if self._lock else "", now, self._report)

    @property
    def _name(self) -> str:
        return self._lock.name if self._lock else ""

    def log_folder_of_jobs(self, jobs: Iterable[str]) -> Path | None:
        """The folder of the logs of these jobs (uids): of one job its own, of several the common parent. None when
        there is no log folder."""
        records = [record for uid in jobs if (record := self._records.jobs.get(uid))]
        folders = [record.logs for record in records if record.logs.is_dir()]
        return Path(os.path.commonpath(folders)) if folders else None

    # Called by the node.

    def log_folder(self, pod: Json) -> Path | None:
        """The folder for the logs of a pod, made if the pod has not ended. None for a pod without a job, or when the
        folder cannot be made."""
        live = (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        record = self._records.of_pod(pod, live)
        if record is None:
            return None
        folder = record.logs / pod_log_folder(pod)
        try:
            if live:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            self._report(error)
            return None
        return folder

    # Lifecycle.

    async def start(self, api: ApiClient) -> None:
        """Start the watches. Returns when all first lists are stored, at the latest after _SYNC_TIMEOUT."""
        self._api = api
        if self._lock:
            await self._run_in_thread(mark_interrupted, self._root)
        for kind in kinds.ALL:
            self._watch(WatchTarget(kind.gvk, optional=True), self._job_seen)
        self._watch(WatchTarget(POD, selection=Selectors(OWNER)), self._pod_seen)
        self._watch(WatchTarget(EVENT, optional=True), self._event_seen)
        self.tasks.start("write records", self._keep_writing)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SYNC_TIMEOUT):
                await _wait_until(lambda: all(store.synced for store in self._stores.values()), self._watch_advanced)
        self._synced = True

    def _watch(self, target: WatchTarget, handle: Callable[[Json | None, Json | None], None]) -> None:
        store: Store[Json] = Store(dict_adapter(api_version=target.gvk.api_version, kind=target.gvk.kind))
        self._stores[target.gvk] = store

        def apply(event: StoreEvent[Json]) -> None:
            for change in store.apply(event):
                try:
                    handle(change.before, change.after)
                except Exception:  # a bug of the recorder must not end the watch
                    log.exception("history: an object was not recorded, unexpected error")
            self._watch_advanced.set()

        if self._api is not None:
            self.tasks.start(f"watch {target.name}", Reflector(self._api, target, store.adapter, apply).run)

    async def close(self, kill: bool = False, message: str = "") -> None:
        """Write all records. `message` is the reason that is recorded for jobs that have not ended."""
        if not kill:
            with contextlib.suppress(ApiError, TimeoutError):
                async with asyncio.timeout(_CATCH_UP):
                    await self._catch_up()
        # A thread cannot be cancelled: its write must end before the last write begins.
        async with self._write_lock:
            self.tasks.cancel_all()
        await self.tasks.stop()
        for uid, record in self._records.jobs.items():
            if not record.is_finished:
                record.interrupt(self._now(), message or "the cluster was stopped before the job ended")
                self._changed[uid] = record
        await self._write()
        if self._lock:
            await self._run_in_thread(prune, self._root, self._options.limits, self._now())
            self._lock.close()
            self._lock = None

    async def _catch_up(self) -> None:
        """Wait until each store equals a fresh list. No component writes to the API any more when this is called."""
        for gvk, store in self._stores.items():
            if self._api is None or not (len(store) or gvk == EVENT):
                continue
            page = await self._api.list(gvk, "", OWNER if gvk == POD else "")
            listed = _versions(page.get("items") or [])
            # Awaited in the same iteration.
            await _wait_until(lambda: _versions(store) == listed, self._watch_advanced)  # noqa: B023

    # Changes delivered by the watches.

    def _job_seen(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        if job is None:
            return
        deleted = before is not None and (after is None or uid_of(after) != uid_of(before))
        if before is not None and deleted and (record := self._records.jobs.get(uid_of(before))):
            record.record_deletion(self._now())
            self._job_finished.set()
            self._mark_changed(uid_of(before), record)
        if after is None:
            return
        if not self._records.is_known(uid_of(after)) and not self._synced and result_of(after)[0]:
            return  # it ended before its history was kept, or its record was removed
        created = parse_time(after["metadata"].get("creationTimestamp"))
        if record := self._records.of_job(uid_of(after), namespace_of(after), name_of(after), created, True):
            record.record_job(after, self._now())
            if result_of(after)[0]:
                self._job_finished.set()
            self._mark_changed(uid_of(after), record)

    def _pod_seen(self, before: Json | None, after: Json | None) -> None:
        if before is not None and (after is None or uid_of(after) != uid_of(before)):
            self._record_pod(before, deleted=True)
        if after is not None:
            self._record_pod(after, deleted=False)

    def _record_pod(self, pod: Json, deleted: bool) -> None:
        live = not deleted and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        record = self._records.of_pod(pod, live)
        if record is None:
            return
        for uid in (uid_of(pod), *(str(owner.get("uid")) for owner in pod["metadata"].get("ownerReferences") or [])):
            self._records.add_uid(uid, record)
        for uid in record.record_pod(pod, deleted):
            self._records.remove_uid(uid)
        self._mark_changed(str(labels_of(pod).get(OWNER)), record)

    def _event_seen(self, before: Json | None, after: Json | None) -> None:
        if after is not None and (record := self._records.add_event(after)):
            self._mark_changed(str(record.data["uid"]), record)

    # Writing.

    def _mark_changed(self, uid: str, record: JobRecord) -> None:
        self._changed[uid] = record
        self._write_due.set()

    async def _keep_writing(self) -> None:
        """Write changed records for ever: once in _BETWEEN_WRITES seconds, and at once when a job has ended. Also
        prunes the history, at most once in _PRUNE_INTERVAL."""
        pause = write_pause = 0.0
        while True:
            await self._write_due.wait()
            await asyncio.sleep(max(_FIRST_WRITE, write_pause))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._job_finished.wait()
            self._write_due.clear()
            self._job_finished.clear()
            start = time.monotonic()
            finished = await self._write()
            pause, write_pause = _BETWEEN_WRITES, _WRITE_PAUSE_FACTOR * (time.monotonic() - start)
            if finished and time.monotonic() - self._last_prune > _PRUNE_INTERVAL:
                self._last_prune = time.monotonic()
                await self._run_in_thread(prune, self._root, self._options.limits, self._now())

    async def _write(self) -> bool:
        """Write the records that have changed; whether one of their jobs has ended."""
        async with self._write_lock:
            changed, self._changed = self._changed, {}
            snapshots = [record.snapshot(self._name) for record in changed.values()]
            for uid, record in changed.items():
                if record.complete:
                    self._records.forget(uid, record)
            for snapshot in snapshots:
                await self._run_in_thread(snapshot.write)
            return any(record.is_finished for record in changed.values())

    async def _run_in_thread(self, function: Callable[..., object], *arguments: object) -> None:
        """Call the function in a thread, and report an OSError."""
        try:
            await asyncio.to_thread(function, *arguments)
        except OSError as error:
            self._report(error)

    def _report(self, error: OSError) -> None:
        """Report an error of the disk, once for each cause."""
        reason = (error.strerror or str(error)).lower()
        if reason not in self._reported:
            self._reported.add(reason)
            fix = "Free some space, or set XDG_STATE_HOME to a folder that you can write"
            self._say(f"history: {error.filename or self._root}: {reason}; the record is incomplete. {fix}")


async def _wait_until(condition: Callable[[], bool], changed: asyncio.Event) -> None:
    """Wait until `condition` holds, and check it each time that `changed` is set."""
    while not condition():
        changed.clear()
        await changed.wait()


def _versions(objects: Iterable[Json]) -> set[tuple[str, str]]:
    """The (uid, resourceVersion) pairs of the objects."""
    return {(uid_of(obj), resource_version_of(obj)) for obj in objects}
