"""What open pages share: the page of a job, the frame of its ranks, and the moments at which frames are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.waiting import until_async
from trainyard import kinds
from trainyard.client import ApiClient, NotFound, Selectors
from trainyard.client.request import ALL_OBJECTS
from trainyard.objects import GVK, Json, encode
from trainyard.objects.labels import INDEX, OWNER, ROLE
from trainyard.objects.resources import EVENT, POD
from trainyard.objects.usage import DeviceUsage
from trainyard.page.job_list import JobList
from trainyard.page.job_pages import JobPages
from trainyard.page.job_progress import ProgressReader
from trainyard.page.live import LivePage, Sources
from trainyard.page.observation import Observation

GVK_OF_JOB = kinds.KUBEFLOW_TFJOB.gvk
REPLICAS = 100  # a page is read twice a second at most


def job() -> Json:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": REPLICAS, "template": template}}}
    metadata = {"name": "big", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    return {"apiVersion": GVK_OF_JOB.api_version, "kind": GVK_OF_JOB.kind, "metadata": metadata, "spec": spec}


def pod(index: int, revision: int = 1, phase: str = "Running") -> Json:
    labels = {OWNER: "u", ROLE: "Worker", INDEX: str(index)}
    metadata = {"name": f"big-worker-{index}", "namespace": "default", "uid": f"p{index}", "labels": labels}
    return {
        "kind": "Pod",
        "metadata": metadata | {"resourceVersion": str(revision)},
        "spec": {},
        "status": {"phase": phase},
    }


class Api(ApiClient):
    """Serves one job and its pods. `lists`: what was listed, but for the watches."""

    def __init__(self) -> None:
        super().__init__("http://localhost")
        self.lists: list[GVK] = []
        self.changes = asyncio.Queue[tuple[str, Json]]()  # of pods

    async def list(self, gvk: GVK, *arguments: Any, **options: Any) -> Json:
        self.lists.append(gvk)
        return {"items": []}

    async def get(self, *arguments: Any, **options: Any) -> Json:
        raise NotFound(404, "NotFound", "not found")

    async def list_bytes(
        self, gvk: GVK, namespace: str, selection: Selectors = ALL_OBJECTS, limit: int = 0, continue_token: str = ""
    ) -> bytes:
        objects = {GVK_OF_JOB: [job()], POD: [pod(index) for index in range(REPLICAS)]}
        return encode({"metadata": {"resourceVersion": "1"}, "items": objects.get(gvk, [])})

    async def watch(self, gvk: GVK, *arguments: Any, **options: Any) -> AsyncGenerator[bytes, None]:
        while True:
            if gvk != POD:
                await asyncio.Event().wait()
            change, changed = await self.changes.get()
            yield encode({"type": change, "object": changed})


@pytest.fixture
async def api() -> Api:
    return Api()


@pytest.fixture
async def observation(api: Api) -> AsyncIterator[Observation]:
    observation = Observation(api)
    observation.subscribe(lambda uid: None)
    await until_async(lambda: observation.synced, "everything is listed", pause=0)
    yield observation
    await observation.stop()


async def change(api: Api, observation: Observation, type_of_change: str, changed: Json) -> None:
    before = observation.revision("u")
    api.changes.put_nowait((type_of_change, changed))
    await until_async(lambda: observation.revision("u") != before, "the change is observed", pause=0)


async def test_tabs_share_a_page_while_pods_change(api: Api, observation: Observation) -> None:
    pages = JobPages(api, observation, has_history=False)
    first = await pages.page("u")
    await change(api, observation, "MODIFIED", pod(0, 2, "Failed"))
    assert await pages.page("u") is first
    pages = JobPages(api, observation, has_history=False)
    again = await pages.page("u")
    assert first is not None and again is not None
    assert (first.ranks["state"][0], again.ranks["state"][0]) == ("Running", "Failed")


async def test_a_page_is_made_from_the_pods_that_are_watched(api: Api, observation: Observation) -> None:
    await change(api, observation, "DELETED", pod(0, 2))
    page = await JobPages(api, observation, has_history=False).page("u")
    assert page is not None
    assert (page.ranks["replica"][0], page.job.row.running) == ("worker-1", REPLICAS - 1)
    assert EVENT in api.lists and POD not in api.lists


async def test_tabs_that_were_opened_at_different_times_send_at_the_same_moments(
    api: Api, observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = JobPages(api, observation, has_history=False)
    jobs = JobList(observation, None)
    progress = ProgressReader(api, observation, jobs, None)
    sources = Sources(observation, jobs, progress, pages, lambda uid, replica: None)
    sent: list[list[bytes]] = [[], []]
    now = 100.1
    monkeypatch.setattr("trainyard.page.live.time", SimpleNamespace(monotonic=lambda: now))

    def new_tab(frames: list[bytes]) -> LivePage:
        async def send(frame: bytes) -> None:
            frames.append(frame)

        tab = LivePage(sources, send, dict)
        tab.subscribe(["job:u"])
        return tab

    early, late = new_tab(sent[0]), new_tab(sent[1])
    await early._send_due_frames()
    now = 100.4
    await late._send_due_frames()
    await change(api, observation, "MODIFIED", pod(0, 2, "Failed"))
    for tab in (early, late):
        tab._on_change("u")
        assert await tab._send_due_frames() == pytest.approx(0.1)
    now = 100.5
    for tab in (early, late):
        await tab._send_due_frames()
    assert sent[0][-1] is sent[1][-1] and b"Failed" in sent[0][-1]


async def test_the_devices_are_read_once_for_all_tabs_and_seldom_where_there_are_none(
    api: Api, observation: Observation, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [[DeviceUsage(0, "GPU-a", "H100", lost="x")], []]
    reads, now = 0, 100.0

    async def read_devices(_: object) -> list[DeviceUsage]:
        nonlocal reads
        reads += 1
        return answers.pop(0) if answers else []

    monkeypatch.setattr("trainyard.page.job_pages.read_devices", read_devices)
    monkeypatch.setattr("trainyard.page.job_pages.time", SimpleNamespace(monotonic=lambda: now))
    pages = JobPages(api, observation, has_history=False)
    lines = ["0 H100: lost: x; no pod gets it"]
    assert await asyncio.gather(pages.device_lines(), pages.device_lines()) == [lines, lines] and reads == 1
    now += 2
    assert await pages.device_lines() == [] and reads == 2
    now += 2
    assert await pages.device_lines() == [] and reads == 2
    now += 30
    assert await pages.device_lines() == [] and reads == 3
    assert await JobPages(None, None, has_history=True).device_lines() == []
