"""The jobs and pods of a cluster, watched while somebody looks: a page server without a page open sends no request."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from itertools import count

from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.controller_runtime.watches import Watches, watch_target
from trainyard.objects import Json, labels_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD
from trainyard.views.job_view import JobView

LIST_SECONDS = 10.0  # the first list of a large cluster
LINGER_SECONDS = 10.0  # a page that is loaded again finds the watches still open
ChangeListener = Callable[[str], None]
"""Called with the uid of a job that has changed, or of which a pod has; with "" when `forbidden` has."""


_CANNOT = re.compile(r'cannot (\w+) resource "([\w/]+)" in API group "([\w.]*)"')


class Observation:
    """`view` has the jobs and replicas that are known; `namespace` "" is all namespaces."""

    def __init__(self, api: ApiClient, namespace: str = "") -> None:
        self.view = JobView()
        self.forbidden: list[str] = []
        """What the API server refuses: "list pods". The page names it instead of being empty."""
        self.namespace = namespace
        self._api = api
        self._listeners: set[ChangeListener] = set()
        self._watches: Watches | None = None
        self._pods: dict[str, dict[str, Json]] = {}  # by the uid of the job, also of one that is not seen yet
        self._revisions: dict[str, int] = {}
        self._counter = count(1)
        self._stop_timer: asyncio.TimerHandle | None = None
        self._stopping: set[asyncio.Task[None]] = set()

    @property
    def synced(self) -> bool:
        """Whether every resource has been listed once, or is refused."""
        return self._watches is not None and self._watches.settled

    def subscribe(self, listener: ChangeListener) -> None:
        """Call `listener` after changes. The first one starts the watches."""
        self._listeners.add(listener)
        if self._stop_timer is not None:
            self._stop_timer.cancel()
            self._stop_timer = None
        if self._watches is None:
            self._start()

    def unsubscribe(self, listener: ChangeListener) -> None:
        """The opposite of `subscribe`. After the last one the watches end, LINGER_SECONDS later."""
        self._listeners.discard(listener)
        if not self._listeners and self._watches is not None and self._stop_timer is None:
            self._stop_timer = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._stop_later)

    @contextlib.asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Watch the cluster meanwhile, and wait until it is listed."""
        listed = asyncio.Event()

        def listener(_: str) -> None:
            listed.set()

        self.subscribe(listener)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LIST_SECONDS):
                    while not self.synced:
                        listed.clear()
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(0.1):  # the last list may be empty: it changes no job
                                await listed.wait()
            yield
        finally:
            self.unsubscribe(listener)

    async def stop(self) -> None:
        """End the watches, and forget what was seen. Idempotent."""
        if self._stop_timer is not None:
            self._stop_timer.cancel()
            self._stop_timer = None
        watches, self._watches = self._watches, None
        if watches is not None:
            await watches.stop()
        self.view, self._pods, self._revisions, self.forbidden = JobView(), {}, {}, []

    def revision(self, job_uid: str) -> int:
        """A number that grows with each change of the job or of one of its pods."""
        return self._revisions.get(job_uid, 0)

    def pods(self, job_uid: str) -> list[Json]:
        """The pods of a job that exist."""
        return list(self._pods.get(job_uid, {}).values())

    def present_view(self, job: Json) -> JobView:
        """A job with the pods that exist: `view` has those that are gone, too."""
        replicas, pods = self.view.replicas.get(uid_of(job), {}), self._pods.get(uid_of(job), {})
        return JobView({uid_of(job): job}, {uid_of(job): {uid: replicas[uid] for uid in pods if uid in replicas}})

    def _start(self) -> None:
        self._watches = watches = Watches(self._api)
        for kind in kinds.ALL:
            watches.watch(watch_target(kind.gvk, self.namespace), self._change_job, self._forbid)
        watches.watch(watch_target(POD, self.namespace, OWNER), self._change_pod, self._forbid)

    def _stop_later(self) -> None:
        self._stop_timer = None
        task = asyncio.ensure_future(self.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _forbid(self, message: str) -> None:
        match = _CANNOT.search(message)
        text = f"{match[1]} {match[2]}{f'.{match[3]}' if match[3] else ''}" if match else message
        if text not in self.forbidden:
            self.forbidden.append(text)
            self._changed("")

    def _change_job(self, before: Json | None, after: Json | None) -> None:
        if before is not None and (after is None or uid_of(after) != uid_of(before)):
            self.view.remove_job(uid_of(before))
            self._pods.pop(uid_of(before), None)
            self._changed(uid_of(before))
        if after is None:
            return
        uid, is_new = uid_of(after), uid_of(after) not in self.view.jobs
        self.view.update_job(after, time.time())
        for pod in self._pods.get(uid, {}).values() if is_new else ():
            self.view.update_pod(pod, time.time())
        self._changed(uid)

    def _change_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        if pod is None:
            return
        job_uid = str(labels_of(pod).get(OWNER) or "")
        if after is None:
            self._pods.get(job_uid, {}).pop(uid_of(pod), None)
        else:
            self._pods.setdefault(job_uid, {})[uid_of(pod)] = pod
        self.view.update_pod(pod, time.time())
        self._changed(job_uid)

    def _changed(self, job_uid: str) -> None:
        self._revisions[job_uid] = next(self._counter)
        for listener in tuple(self._listeners):
            listener(job_uid)
