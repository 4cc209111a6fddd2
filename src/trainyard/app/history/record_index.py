"""The records of the jobs that are being recorded, found by the uid of the job, of a pod or of a pod's owner.

An event may arrive before the object that it is about: such events are kept until the object is seen, up to a limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import msgspec

from trainyard.app.history.job_record import JobRecord
from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.records import RECORDING, RESULT, folder_name, job_folders, read_record, write_file
from trainyard.objects import Json, encode, format_time, labels_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.views.recorded import ID_LENGTH

_MAX_ORPHANS = 500  # objects not seen yet whose events are kept
_EVENTS_PER_ORPHAN = 20  # events kept of each of these objects


class HistoryOptions(msgspec.Struct, frozen=True):
    """`where` is the name of the cluster in the history: "run", or the name of the background cluster."""

    root: Path
    where: str
    logs: Path | None = None  # a folder of the user's own choice for the logs
    limits: RetentionLimits = msgspec.field(default_factory=RetentionLimits)


class RecordIndex:
    """`lock_name`: the name of the recorder's lock file; "" when it has none: then only logs can be kept. `report` is
    called with an OSError of a new folder. `jobs`: the records by the uid of the job."""

    def __init__(
        self,
        options: HistoryOptions,
        lock_name: str,
        now: Callable[[], float],
        report: Callable[[OSError], None],
    ) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self._options, self._lock_name, self._now, self._report = options, lock_name, now, report
        self._by_uid: dict[str, JobRecord] = {}  # by the uids of jobs, pods and the pods' owners
        self._orphan_events: OrderedDict[str, dict[str, Json]] = OrderedDict()  # by involvedObject.uid, event uid
        # By the id at the end of their name.
        self._folders = {folder.name.rpartition("-")[2]: folder for folder in job_folders(options.root)}

    def is_known(self, uid: str) -> bool:
        """Whether the job with this uid has a record, in memory or in the history."""
        return uid in self.jobs or uid[:ID_LENGTH] in self._folders

    def of_pod(self, pod: Json, live: bool) -> JobRecord | None:
        """The record of the job that owns a pod; made for a `live` pod, which a watch may deliver before its job."""
        uid, owners = str(labels_of(pod).get(OWNER) or ""), pod["metadata"].get("ownerReferences") or []
        if not uid or not owners:
            return None
        return self.of_job(uid, namespace_of(pod), str(owners[0].get("name") or ""), None, live)

    def of_job(self, uid: str, namespace: str, name: str, created: float | None, make: bool) -> JobRecord | None:
        """The record of the job with this uid: known, read from the history, or with `make` made. None when there is
        none. `created`: Unix seconds, None for the present time."""
        if uid in self.jobs:
            return self.jobs[uid]
        folder = self._folders.get(uid[:ID_LENGTH])
        if folder is not None and (stored := read_record(folder)) is not None:
            record = JobRecord.loaded(folder, stored.content, self._options.limits)
        elif make:
            new_record = self._make(uid, namespace, name, self._now() if created is None else created)
            if new_record is None:
                return None
            record = new_record
        else:
            return None
        self.jobs[uid] = record
        self.add_uid(uid, record)
        return record

    def add_uid(self, uid: str, record: JobRecord) -> None:
        """From now on events about this uid are events of that job, those that came before included."""
        self._by_uid[uid] = record
        for event in self._orphan_events.pop(uid, {}).values():
            record.record_event(event)

    def remove_uid(self, uid: str) -> None:
        """Events about this uid are no longer recorded."""
        self._by_uid.pop(uid, None)

    def add_event(self, event: Json) -> JobRecord | None:
        """Add the event to the record of its job, which is returned; None while the object is not known."""
        uid = str((event.get("involvedObject") or {}).get("uid") or "")
        if record := self._by_uid.get(uid):
            record.record_event(event)
            return record
        if uid:
            events = self._orphan_events.setdefault(uid, {})
            events[uid_of(event)] = event
            if len(events) > _EVENTS_PER_ORPHAN:
                del events[next(iter(events))]
            if len(self._orphan_events) > _MAX_ORPHANS:
                self._orphan_events.popitem(last=False)
        return None

    def forget(self, uid: str, record: JobRecord) -> None:
        """Drop the record of a deleted job from memory: all of it is written."""
        self.jobs.pop(uid, None)
        for mapped in [mapped for mapped, owner in self._by_uid.items() if owner is record]:
            del self._by_uid[mapped]

    def _make(self, uid: str, namespace: str, name: str, created: float) -> JobRecord | None:
        """A record with a folder for a new job. None when no folder can be made."""
        folder = self._options.root / folder_name(uid, namespace, name, created)
        logs = self._make_logs_folder(folder.name)
        data: Json = {"uid": uid, "namespace": namespace, "name": name, "where": self._options.where}
        data |= {"created": format_time(created), "logs": str(logs or ""), "result": ""}
        if not self._lock_name and logs is None:
            return None  # neither folder can be made, which is reported already
        try:
            if self._lock_name:
                folder.mkdir(mode=0o700, exist_ok=True)
                write_file(folder / RECORDING, f"{self._lock_name}\n")
                write_file(folder / RESULT, encode({**data, "pods": []}).decode())
        except OSError as error:
            self._report(error)
            if logs is None:
                return None
        self._folders[uid[:ID_LENGTH]] = folder
        return JobRecord(folder, data, self._options.limits)

    def _make_logs_folder(self, name: str) -> Path | None:
        """A new folder for the logs of a job in the folder of --logs-dir; existing folders are not changed. None
        without --logs-dir, or if it cannot be created."""
        if self._options.logs is None:
            return None
        for number in range(1, 100):
            path = self._options.logs / (name if number == 1 else f"{name}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as error:
                self._report(error)
                return None
            return path
        return None
