"""A local cluster in a thread, with methods that block: for tests that are not coroutines.

with local_cluster() as cluster:
    (job,) = cluster.submit(Path("job.yaml"))
    cluster.wait_for(job, "Succeeded")
    assert "loss" in cluster.logs(job)["master-0"]
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from trainyard import kinds
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.client import ApiError, NotFound
from trainyard.objects import GVK, Json, is_condition_true, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER, replica_name
from trainyard.objects.manifest import read
from trainyard.objects.resources import (
    CONFIG_MAP,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)

POLL_INTERVAL = 0.05  # seconds
START_TIMEOUT = 120.0  # seconds: the first start on a machine makes certificates and compiles modules
ENDS = ("Succeeded", "Failed")
BUILT_IN = (CONFIG_MAP, NAMESPACE, PERSISTENT_VOLUME_CLAIM, POD, SECRET, SERVICE, SERVICE_ACCOUNT)

T = TypeVar("T")


class JobFailed(AssertionError):
    """The job ended otherwise than the test waited for. The message has its conditions."""


class ClusterHandle:
    """A running cluster. Every method may be called from any thread but the cluster's own."""

    def __init__(self, cluster: LocalCluster, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = cluster
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the cluster's event loop, e.g. one of `cluster.api`. Raises what it raises."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def kubeconfig(self, path: Path | None = None) -> Path:
        """Write a kubeconfig of the cluster for kubectl; return its path."""
        return self.cluster.write_kubeconfig(path)

    def submit(self, manifest: Json | str | Path, namespace: str = "default") -> list[Json]:
        """Create the objects of a manifest: one object, YAML text, or a file. Returns them as they are stored.
        Raises ManifestError for text that is no manifest and ApiError for objects that the API server refuses."""
        if isinstance(manifest, dict):
            objects = [manifest]
        else:
            source = str(manifest) if isinstance(manifest, Path) else "manifest"
            text = manifest.read_text() if isinstance(manifest, Path) else manifest
            objects = [document.obj for document in read(text, source)]
        return [self._create(obj, namespace) for obj in objects]

    def _create(self, obj: Json, namespace: str) -> Json:
        gvk = _gvk_of(obj)
        place = "" if gvk == NAMESPACE else obj["metadata"].get("namespace") or namespace
        if place and place != "default":
            self.run(self.cluster.namespace(place))
        return _with_type(gvk, self.run(self.cluster.api.create(gvk, place, obj)))

    def get(self, obj: Json) -> Json:
        """The object as it is now. Raises NotFound."""
        gvk = _gvk_of(obj)
        return _with_type(gvk, self.run(self.cluster.api.get(gvk, namespace_of(obj), name_of(obj))))

    def delete(self, obj: Json, timeout: float = 60.0) -> None:
        """Delete the object, and wait until it is gone. Raises TimeoutError."""
        self.run(self.cluster.api.delete(_gvk_of(obj), namespace_of(obj), name_of(obj)))

        def is_gone() -> bool:
            try:
                return uid_of(self.get(obj)) != uid_of(obj)
            except NotFound:
                return True

        _poll(is_gone, timeout, lambda: f"{name_of(obj)} is still there after {timeout:g} seconds")

    def wait_for(self, job: Json, condition: str = "Succeeded", timeout: float = 60.0) -> Json:
        """The job when that condition is True. Raises JobFailed as soon as the job has ended without it, TimeoutError
        after `timeout` seconds, both with the conditions of the job."""
        latest = job

        def is_met() -> bool:
            nonlocal latest
            latest = self.get(job)
            conditions = (latest.get("status") or {}).get("conditions")
            if is_condition_true(conditions, condition):
                return True
            if any(is_condition_true(conditions, end) for end in ENDS):
                raise JobFailed(f"{name_of(job)} ended without {condition}: {_describe(latest)}")
            return False

        text = f"{name_of(job)} is not {condition} after {timeout:g} seconds"
        _poll(is_met, timeout, lambda: f"{text}: {_describe(latest)}")
        return latest

    def pods(self, job: Json) -> dict[str, Json]:
        """The pods of the job by replica, e.g. "worker-0"; of a replica that was restarted, the last."""
        selector = f"{OWNER}={uid_of(job)}"
        listed = self.run(self.cluster.api.list(POD, namespace_of(job), label_selector=selector))["items"]
        listed.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return {replica_name(pod): pod for pod in listed}

    def logs(self, job: Json, container: str = "") -> dict[str, str]:
        """The log of each replica: of its main container, or of `container`; "" before that has started."""
        name = container or _main_container(job)
        return {replica: self.run(self._read_log(pod, name)) for replica, pod in self.pods(job).items()}

    async def _read_log(self, pod: Json, container: str) -> str:
        try:
            chunks = [chunk async for chunk in self.cluster.api.logs(namespace_of(pod), name_of(pod), container)]
        except ApiError as error:
            containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
            if error.code == 400 and container in [item["name"] for item in containers]:  # it waits to start
                return ""
            raise
        return b"".join(chunks).decode(errors="replace")


@contextmanager
def local_cluster(options: LocalClusterOptions | None = None) -> Iterator[ClusterHandle]:
    """A cluster that runs within the block; its pods are killed at the end. By default it is silent, and pods share
    the network of the machine, so it needs no rights."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="trainyard cluster", daemon=True)
    thread.start()
    cluster = LocalCluster(options or LocalClusterOptions(network="shared", say=lambda message: None))
    handle = ClusterHandle(cluster, loop)
    try:
        try:
            handle.run(cluster.start(), START_TIMEOUT)
            yield handle
        finally:
            handle.run(cluster.stop(kill=True), START_TIMEOUT)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _gvk_of(obj: Json) -> GVK:
    """Raises ValueError for a kind that the cluster does not serve."""
    if kind := kinds.kind_of(obj):
        return kind.gvk
    names = str(obj.get("apiVersion")), str(obj.get("kind"))
    built_in = next((gvk for gvk in BUILT_IN if (gvk.api_version, gvk.kind) == names), None)
    if built_in is None:
        raise ValueError(f"unknown kind: apiVersion {names[0]}, kind {names[1]}")
    return built_in


def _with_type(gvk: GVK, obj: Json) -> Json:
    return {"apiVersion": gvk.api_version, "kind": gvk.kind} | obj


def _main_container(job: Json) -> str:
    kind = kinds.kind_of(job)
    return kind.roles.container if kind else ""


def _describe(job: Json) -> str:
    conditions = (job.get("status") or {}).get("conditions") or []
    true = [condition for condition in conditions if condition.get("status") == "True"]
    texts = [f"{item['type']} ({item.get('reason', '')}: {item.get('message', '')})" for item in true]
    return ", ".join(texts) or "no condition is True"


def _poll(is_done: Callable[[], bool], timeout: float, message: Callable[[], str]) -> None:
    deadline = time.monotonic() + timeout
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(message())
        time.sleep(POLL_INTERVAL)
