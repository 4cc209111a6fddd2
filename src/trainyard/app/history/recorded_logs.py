"""The log files of a record of the history: which run of which container each of them has."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trainyard.app.history.records import HistoryRecord
from trainyard.views.recorded import ID_LENGTH


class LogFile(msgspec.Struct, frozen=True):
    """The log file of one run of one container."""

    path: Path
    replica: str
    attempt: int
    pod: str  # the first characters of the pod's uid
    container: str
    run: int

    @property
    def role(self) -> str:
        """The role of the replica, in lower case."""
        return self.replica.rpartition("-")[0] or self.replica

    @property
    def index(self) -> str:
        """The index of the replica in its role."""
        return self.replica.rpartition("-")[2]


def log_files(record: HistoryRecord) -> list[LogFile]:
    """All log files of a record: by replica, then by attempt, then the pods from the oldest to the newest; those of
    init containers first."""
    pod_order = {str(pod.get("uid"))[:ID_LENGTH]: index for index, pod in enumerate(record.pods)}
    files = []
    for path in record.log_files():
        replica, pod, container, run = path.parts[-4:]
        _, attempt, uid = [*pod.split("-"), "", ""][:3]
        number = run.removesuffix(".log")
        if attempt.isdecimal() and number.isdecimal():
            files.append(LogFile(path, replica, int(attempt), uid, container, int(number)))
    init_containers = init_containers_of(record)
    replicas = {file.replica: index for index, file in reversed([*enumerate(files)])}
    return sorted(
        files,
        key=lambda file: (
            *(replicas[file.replica], file.attempt, pod_order.get(file.pod, len(pod_order)), file.pod),
            (file.pod, file.container) not in init_containers,
        ),
    )


def init_containers_of(record: HistoryRecord) -> set[tuple[str, str]]:
    """The init containers of all recorded pods: the first characters of the pod's uid, and the container's name."""
    return {
        (str(pod.get("uid"))[:ID_LENGTH], str(container.get("name")))
        for pod in record.pods
        for container in pod.get("containers") or []
        if container.get("init")
    }
