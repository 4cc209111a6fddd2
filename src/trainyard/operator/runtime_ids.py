"""The RuntimeIds of the jobs in each namespace, which no other job there may choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection


class RuntimeIds:
    """RuntimeIds by namespace and job uid. Each method takes the same time, however many jobs there are."""

    def __init__(self) -> None:
        self._by_job: dict[tuple[str, str], str] = {}  # (namespace, job uid) -> RuntimeId
        self._in_use: dict[str, Counter[str]] = {}  # namespace -> RuntimeId -> number of jobs

    def set(self, namespace: str, job_uid: str, runtime_id: str) -> None:
        """Store the RuntimeId of a job; "" when it has none."""
        previous = self._by_job.pop((namespace, job_uid), "")
        if previous:
            in_use = self._in_use[namespace]
            in_use[previous] -= 1
            if not in_use[previous]:
                del in_use[previous]
            if not in_use:
                del self._in_use[namespace]
        if runtime_id:
            self._by_job[namespace, job_uid] = runtime_id
            self._in_use.setdefault(namespace, Counter())[runtime_id] += 1

    def in_use(self, namespace: str) -> Collection[str]:
        """The RuntimeIds in this namespace, as a view of the present state."""
        return self._in_use.get(namespace, {}).keys()
