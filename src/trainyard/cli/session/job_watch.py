"""Watches jobs until their end and prints the logs of their replicas: the engine of `run`, `submit --wait`,
`submit --logs` and `logs -f`."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

import msgspec

from trainyard.cli.command.codes import FAILED, SUCCEEDED
from trainyard.cli.output.follow import LogFollowers
from trainyard.cli.output.log_prefixes import log_prefixes
from trainyard.cli.output.screen import Screen
from trainyard.client import ApiClient
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.store import Store
from trainyard.controller_runtime.watches import UNAVAILABLE_TIMEOUT, Watches, watch_target
from trainyard.objects import GVK, Json, resource_version_of, uid_of
from trainyard.objects.labels import OWNER, index_of
from trainyard.objects.resources import POD
from trainyard.views.job_view import JobView, is_success_in_doubt, job_result
from trainyard.views.replica_view import replica_view


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
        """Whether one replica is selected, whose lines need no prefix."""
        return bool(self.role) and self.index is not None and not self.prefix

    def selects(self, pod: Json) -> bool:
        """Whether the replica of this pod is selected."""
        is_role = not self.role or replica_view(pod).role == self.role.lower()
        return is_role and (self.index is None or index_of(pod) == str(self.index))


class JobWatch:
    """Watches the jobs of `view` and their pods, keeps `view` up to date, and prints the pods' logs.

    Call `start`, then `wait_until`, finally `stop`. `patience`: seconds without an answer of the API server after which
    `wait_until` raises Unavailable. `tasks` runs the watches.
    """

    def __init__(
        self,
        api: ApiClient,
        screen: Screen,
        view: JobView,
        selection: LogSelection = LogSelection(),  # noqa: B008  (a value)
        patience: float = UNAVAILABLE_TIMEOUT,
        tasks: TaskSupervisor | None = None,
    ) -> None:
        self.view = view
        self.watches = Watches(api, patience, tasks)
        self.pods: Store[Json]
        self._api = api
        self._pod_stores: dict[str, Store[Json]] = {}  # by namespace
        self.deleted_pods: dict[str, Json] = {}  # the last observed state of deleted pods, by uid
        self.view_changed = asyncio.Event()
        self.logs = LogFollowers(api, screen, self._label, selection.tail, selection.container)
        self._screen = screen
        self._selection = selection
        self._job_stores: list[Store[Json]] = []

    def _label(self, pod: Json) -> str:
        return "" if self._selection.unprefixed else self.view.label(replica_view(pod))

    def start(self, resources: Iterable[tuple[GVK, str]]) -> None:
        """Start the watches of the jobs and of the pods. `resources`: those of the jobs, each with a namespace ("": in
        all)."""
        resources = list(dict.fromkeys(resources))
        self._screen.align(log_prefixes(self.view, self._selection.role))
        for gvk, namespace in resources:
            self._job_stores.append(self.watches.watch(watch_target(gvk, namespace), self._handle_job))
        for namespace in dict.fromkeys(namespace for _, namespace in resources if not self._selection.silent):
            self.pods = self.watches.watch(watch_target(POD, namespace, OWNER), self._handle_pod)
            self._pod_stores[namespace] = self.pods

    def _handle_job(self, before: Json | None, after: Json | None) -> None:
        job = after or before
        if job is None or uid_of(job) not in self.view.jobs:
            return
        if after is not None:
            self.view.update_job(after, time.time())
        self.view_changed.set()

    def _handle_pod(self, before: Json | None, after: Json | None) -> None:
        pod = after or before
        if pod is None or not self._selection.selects(pod) or not self.view.update_pod(pod, time.time()):
            return
        if after is not None:
            self.logs.update_pod(after)
        else:
            self.logs.delete_pod(pod)
            self.deleted_pods[uid_of(pod)] = pod
        self.view_changed.set()

    def all_ended(self) -> bool:
        """True when every job has ended or is deleted."""
        if not self.watches.synced:
            return False
        present = {uid_of(job) for store in self._job_stores for job in store}
        return all(job_result(job) or uid not in present for uid, job in self.view.jobs.items())

    async def wait_until(self, condition: Callable[[], bool], pause: Callable[[], float | None] = lambda: None) -> None:
        """Wait until `condition` is true. It is evaluated after each change, and after the seconds that `pause`
        returns (None: only after a change)."""
        while not condition():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause()):
                    await self.watches.wait_for_change()

    async def wait_until_pods_current(self) -> None:
        """Wait until the watches of pods show what a list of the pods shows now.

        The jobs and the pods are watched apart: a job may be seen to end before any of its pods is seen to start, and
        then no log of them has been opened."""
        owners = f"{OWNER} in ({', '.join(self.view.jobs)})"
        for namespace, store in self._pod_stores.items():
            listed = (await self._api.list(POD, namespace, owners)).get("items") or ()
            pods = [pod for pod in listed if self._selection.selects(pod)]
            await self.wait_until(lambda pods=pods, store=store: all(self._shows(store, pod) for pod in pods))  # type: ignore[misc]

    def _shows(self, store: Store[Json], pod: Json) -> bool:
        """Whether the watch has shown this state of the pod, a later one, or its deletion."""
        if uid_of(pod) in self.deleted_pods:
            return True
        shown = store.by_uid(uid_of(pod))
        return shown is not None and int(resource_version_of(shown)) >= int(resource_version_of(pod))

    async def stop(self) -> None:
        """End the watches and the followers."""
        await self.logs.stop()
        await self.watches.stop()


def exit_code(jobs: Iterable[Json]) -> int:
    """The exit code for jobs that have ended, as far as the objects tell."""
    return SUCCEEDED if all(job_result(job) == "Succeeded" and not is_success_in_doubt(job) for job in jobs) else FAILED
