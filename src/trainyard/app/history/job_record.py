"""The record of one job in memory, while it is recorded: the job, its pods and its events become the files of its
folder. It holds values only; only `Snapshot.write` touches the disk.

Rules:
- Adding an object costs the same whatever the size of the job: it is stored by uid, and written later.
- Of the pods of one replica, and of the events, the first and the last ones are kept; the number left out is recorded.
"""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from itertools import islice
from pathlib import Path, PurePosixPath

import msgspec

from trainyard.app.history.limits import RetentionLimits
from trainyard.app.history.records import INTERRUPTED, LOGS, RECORDING, RESULT, events_text, read_events, write_file
from trainyard.core.status import parse_status
from trainyard.kinds import kind_of
from trainyard.objects import (
    Json,
    find_condition,
    format_time,
    is_condition_true,
    is_deleting,
    name_of,
    namespace_of,
    operator_status,
    uid_of,
)
from trainyard.objects.yaml_text import as_yaml
from trainyard.views.recorded import event_entry, pod_entry

_SET_BY_SERVER = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
_ENDED = ("Succeeded", "Failed")
LOG_FOLDER_DEPTH = 2  # names in `logs` of a pod's entry: a record is foreign input, and that folder is removed


class Snapshot(msgspec.Struct, frozen=True):
    """The files of a job to write; None is a file that has not changed. `recording` is the name of the recorder's lock
    file, "" when recording has ended."""

    folder: Path
    recording: str
    data: Json
    pods: list[Json]
    manifest: Json | None = None
    job: Json | None = None
    events: list[Json] | None = None
    removed_logs: tuple[Path, ...] = ()

    def write(self) -> None:
        """Write the files. A job whose folder was removed from the history stays removed. Raises OSError."""
        for logs in self.removed_logs:
            shutil.rmtree(logs, ignore_errors=True)
        if not self.folder.is_dir():
            return
        if self.recording:
            write_file(self.folder / RECORDING, f"{self.recording}\n")
        # The result comes first: it is small, and the most important file when the disk is full.
        write_file(self.folder / RESULT, json.dumps({**self.data, "pods": self.pods}, ensure_ascii=False))
        if self.manifest is not None:
            write_file(self.folder / "manifest.yaml", as_yaml(self.manifest))
        if self.events is not None:
            write_file(self.folder / "events.yaml", events_text(self.events))
        if self.job is not None:
            write_file(self.folder / "job.yaml", as_yaml(self.job))
        if not self.recording:
            (self.folder / RECORDING).unlink(missing_ok=True)


class JobRecord(msgspec.Struct):
    """`data` is result.json without its pods. A record that an earlier process began is continued (`loaded`)."""

    folder: Path
    data: Json
    limits: RetentionLimits
    pods: dict[str, Json] = msgspec.field(default_factory=dict)  # by uid, oldest first
    uids_by_replica: dict[str, list[str]] = msgspec.field(default_factory=dict)  # the uids of these pods, by replica
    events: dict[str, Json] = msgspec.field(default_factory=dict)  # by uid, oldest first
    live: set[str] = msgspec.field(default_factory=set)  # uids of pods that have not ended
    deleted: bool = False  # the job object has been deleted
    _manifest: Json | None = None
    _job: Json | None = None
    _job_changed: bool = False
    _events_changed: bool = False
    _removed_logs: list[Path] = msgspec.field(default_factory=list)

    @classmethod
    def loaded(cls, folder: Path, data: Json, limits: RetentionLimits) -> JobRecord:
        """A record as an earlier process left it on disk. A pod that ran then ended with that process, unless it is
        seen again: its controller may have replaced it before the watch of this process began."""
        pods = {
            str(pod.get("uid")): pod if pod.get("phase") in _ENDED or pod.get("deleted") else {**pod, "stopped": True}
            for pod in data.get("pods") or []
            if isinstance(pod, dict)
        }
        events = {str(event.get("uid")): event for event in read_events(folder / "events.yaml")}
        kept = {key: value for key, value in data.items() if key != "pods"}
        slots: dict[str, list[str]] = {}
        for uid, pod in pods.items():
            slots.setdefault(str(pod.get("replica")), []).append(uid)
        return cls(folder, kept, limits, pods, slots, events, deleted=bool(data.get("deleted")))

    @property
    def logs(self) -> Path:
        """The folder with the log files of the job's replicas."""
        return Path(str(self.data.get("logs") or self.folder / LOGS))

    @property
    def is_finished(self) -> bool:
        """True when the result is known and no pod is live, so that no more logs are written."""
        return bool(self.data.get("result")) and not self.live

    @property
    def complete(self) -> bool:
        """True when the job and all its pods are deleted: no further change will be seen."""
        return self.is_finished and self.deleted and all(pod.get("deleted") for pod in self.pods.values())

    # Observed objects.

    def record_job(self, job: Json, now: float) -> None:
        """Take over a version of the job that a watch delivered. `now`: seconds since the epoch."""
        if self._job is None and not (self.folder / "manifest.yaml").exists():
            self._manifest = as_submitted(job)
        self._job, self._job_changed = job, True
        result, reason, message = result_of(job)
        status = operator_status(job)
        restarts, kind = status.get("restarts"), kind_of(job)
        ended = str(status.get("completionTime") or "") or self.data.get("ended") or format_time(now)
        self.data |= {
            "apiVersion": job.get("apiVersion"),
            "kind": job.get("kind"),
            "namespace": namespace_of(job),
            "name": name_of(job),
            "created": job["metadata"].get("creationTimestamp"),
            # The job's own number, which counts failures alone: as `trainyard get` shows it.
            "restarts": max(int(self.data.get("restarts") or 0), restarts if isinstance(restarts, int) else 0),
            "restartCauses": dict(parse_status(kind, job).restart_causes) if kind else {},
            "started": self.data.get("started") or status.get("startTime") or "",  # a resume sets startTime again
            "ended": ended if result else "",
            "result": result,
            "reason": reason,
            "message": message,
        }

    def record_deletion(self, now: float) -> None:
        """The job object was deleted."""
        self.deleted = True
        self.data["deleted"] = format_time(now)
        if not self.data.get("result"):
            self.data |= {"result": "Deleted", "ended": format_time(now), "message": "deleted before its end"}

    def interrupt(self, now: float, message: str) -> None:
        """The cluster ended, so the job does not run on."""
        self.live.clear()
        if not self.data.get("result"):
            self.data |= {"result": INTERRUPTED, "ended": format_time(now), "message": message}

    def record_pod(self, pod: Json, gone: bool) -> list[str]:
        """Take over a version of a pod; `gone` is a deleted one. Returns the uids of the pods that were left out for
        it."""
        uid = uid_of(pod)
        entry = pod_entry(pod, self.pods.get(uid), self._job)
        if uid not in self.pods:
            self.uids_by_replica.setdefault(entry["replica"], []).append(uid)
        before = self.pods.get(uid, {})
        if before.get("endedBeforeDeletion") or (entry["phase"] in _ENDED and not gone and not is_deleting(pod)):
            entry["endedBeforeDeletion"] = True
        self.pods[uid] = {**entry, "deleted": True} if gone else entry
        if gone or entry["phase"] in _ENDED:
            self.live.discard(uid)
        else:
            self.live.add(uid)
        return self._leave_out(str(entry["replica"]))

    def _leave_out(self, replica: str) -> list[str]:
        """Remove the oldest pod of a replica that is neither among its first nor among its last ones. Returns its uid,
        in a list."""
        uids = self.uids_by_replica.get(replica, [])  # a damaged entry has no replica
        if len(uids) <= 2 * self.limits.pods or uids[self.limits.pods] in self.live:
            return []
        uid = uids.pop(self.limits.pods)
        entry = self.pods.pop(uid)
        left_out = self.data.setdefault("leftOut", {}).setdefault(replica, {})
        left_out["pods"] = left_out.get("pods", 0) + 1
        parts = PurePosixPath(str(entry.get("logs"))).parts
        is_ours = len(parts) == LOG_FOLDER_DEPTH and not {"/", ".."}.intersection(parts)
        if is_ours and not self.data.get("logs"):  # those in a folder of the user's own choice are the user's
            self._removed_logs.append(self.logs.joinpath(*parts))
        return [uid]

    def record_event(self, event: Json) -> None:
        """Take over an event; at the limit the oldest of the later half is left out."""
        self.events[uid_of(event)] = event_entry(event)
        self._events_changed = True
        if len(self.events) > 2 * self.limits.events:
            del self.events[next(islice(self.events, self.limits.events, None))]
            self.data["eventsLeftOut"] = int(self.data.get("eventsLeftOut") or 0) + 1

    # Writing.

    def snapshot(self, recorder: str) -> Snapshot:
        """All that has changed since the last snapshot."""
        pods = list(self.pods.values())
        self.data["replicas"] = len(self.uids_by_replica)
        events = list(self.events.values()) if self._events_changed else None
        snapshot = Snapshot(
            self.folder,
            "" if self.is_finished else recorder,
            deepcopy(self.data),
            pods,
            self._manifest,
            self._job if self._job_changed else None,
            events,
            tuple(self._removed_logs),
        )
        self._manifest, self._job_changed, self._events_changed, self._removed_logs = None, False, False, []
        return snapshot


def as_submitted(job: Json) -> Json:
    """The job without the fields that the server sets, so that the file can be submitted again."""
    meta = {key: value for key, value in job["metadata"].items() if key not in _SET_BY_SERVER}
    rest = {key: value for key, value in job.items() if key != "status"}
    return {"apiVersion": job.get("apiVersion"), "kind": job.get("kind"), **rest, "metadata": meta}


def result_of(job: Json) -> tuple[str, str, str]:
    """(result, reason, message). The result is Succeeded, Failed, or "" while the job has not ended."""
    status = operator_status(job)
    for result in _ENDED:
        if is_condition_true(status.get("conditions"), result):
            end = find_condition(status.get("conditions"), result) or {}
            return result, str(end.get("reason") or ""), str(end.get("message") or "")
    kind = kind_of(job)
    return (kind.status.legacy_outcome(status) if kind else ""), "", str(status.get("reason") or "")
