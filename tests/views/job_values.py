"""Jobs and pods for the tests of views."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json

START = "2024-01-01T00:00:00Z"
NOW = 1704067200.0 + 75


def job(uid: str = "u", name: str = "a", **conditions: str) -> Json:
    listed = [{"type": kind, "status": "True", "message": text} for kind, text in conditions.items()]
    meta = {"name": name, "namespace": "default", "uid": uid, "creationTimestamp": START}
    return {"kind": "TfJob", "metadata": meta, "status": {"startTime": START, "conditions": listed}}


def pod(slot: str, phase: str = "Running", container: Json | None = None, **more: Any) -> Json:
    role, _, index = slot.rpartition("-")
    labels = {"trainyard.dev/owner": "u", "trainyard.dev/role": role, "trainyard.dev/index": index}
    meta = {"name": f"{slot}-x", "uid": f"p-{slot}", "labels": labels, "creationTimestamp": START}
    status = {"phase": phase, "startTime": START, "containerStatuses": [{"name": "tensorflow", **(container or {})}]}
    return {"metadata": {**meta, **more}, "status": status}


def terminated(code: int, reason: str, at: str = "2024-01-01T00:00:42Z") -> Json:
    return {"state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}}}
