"""The page of a real cluster: with the rights of the person who looks, whatever they are."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.page.browsing import Browser, act, row_of
from tests.support.control_plane import ControlPlane
from trainyard import kinds
from trainyard.app.job_actions import delete_job, scale, set_suspend
from trainyard.client import ApiClient, Conflict
from trainyard.objects import Json, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions

pytestmark = pytest.mark.cluster
GVK = kinds.PYTORCHJOB.gvk


def pytorch_job(name: str) -> Json:
    container = {"name": "pytorch", "image": "none"}
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": {"containers": [container]}}}}}
    return {"apiVersion": GVK.api_version, "kind": GVK.kind, "metadata": {"name": name}, "spec": spec}


def worker(job: Json, index: int) -> Json:
    owner = {"apiVersion": GVK.api_version, "kind": GVK.kind, "name": "a", "uid": uid_of(job), "controller": True}
    labels = {OWNER: uid_of(job), "trainyard.dev/role": "worker", "trainyard.dev/index": str(index)}
    metadata = {"name": f"a-worker-{index}", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"containers": [{"name": "pytorch", "image": "none"}]}}


async def limited(plane: ControlPlane, namespace: str, rules: list[Json]) -> ApiClient:
    """A client with these rights in one namespace, and none elsewhere."""
    base, rbac = f"/api/v1/namespaces/{namespace}", "/apis/rbac.authorization.k8s.io/v1"
    subject = {"kind": "ServiceAccount", "name": "ann", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "looks"}
    for path, body in (
        (f"{base}/serviceaccounts", {"metadata": {"name": "ann"}}),
        (f"{rbac}/namespaces/{namespace}/roles", {"metadata": {"name": "looks"}, "rules": rules}),
        (
            f"{rbac}/namespaces/{namespace}/rolebindings",
            {"metadata": {"name": "looks"}, "subjects": [subject], "roleRef": role},
        ),
    ):
        code, answer = plane.ask("POST", path, body)
        assert code == 201, answer
    code, answer = plane.ask("POST", f"{base}/serviceaccounts/ann/token", {"spec": {}})
    assert code == 201, answer
    return plane.api(token=answer["status"]["token"])


@pytest.fixture
async def job(installed: ControlPlane, namespace: str) -> AsyncIterator[Json]:
    async with installed.api() as api:
        job = await api.create(GVK, namespace, pytorch_job("a"))
        for index in range(2):
            await api.create(POD, namespace, worker(job, index))
        yield job


async def test_who_may_read_one_namespace_sees_it_and_what_is_refused(
    installed: ControlPlane, namespace: str, job: Json
) -> None:
    rules = [
        {"apiGroups": [GVK.group], "resources": [GVK.plural], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    ]
    async with await limited(installed, namespace, rules) as api:
        page_server = PageServer(api, PageOptions("real", "cluster", namespace))
        await page_server.start()
        try:
            async with aiohttp.ClientSession() as http:
                browser = Browser(page_server.url, http)
                assert await browser.log_in(page_server.link()) == 200
                async with browser.live("jobs", f"job:{uid_of(job)}") as live:
                    hello = await live.frame("hello", lambda frame: "list jaxjobs.kubeflow.org" in frame["forbidden"])
                    assert "list pods" not in hello["forbidden"]
                    details = await live.frame("job", lambda frame: True)
                    assert "list events" in details["forbidden"]
                frames = [frame for frame in live.frames if frame["type"] == "jobs"]
                assert any(row_of(frame, "a") for frame in frames)
                ranks = next(frame for frame in live.frames if frame["type"] == "ranks")
                assert ranks["columns"]["replica"] == ["worker-0", "worker-1"]
        finally:
            await page_server.stop()


async def test_who_may_write_on_the_page_and_not_in_the_cluster_is_told_by_the_cluster(
    installed: ControlPlane, namespace: str, job: Json
) -> None:
    rules = [
        {"apiGroups": [GVK.group], "resources": [GVK.plural], "verbs": ["get", "list", "watch", "delete"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    ]
    async with await limited(installed, namespace, rules) as api:
        page_server = PageServer(api, PageOptions("real", "cluster", namespace))
        await page_server.start()
        try:
            async with aiohttp.ClientSession() as http:
                browser = Browser(page_server.url, http)
                await browser.log_in(page_server.link("write"))
                status, text = await act(browser, "suspend", job)
                assert status == 403 and f'cannot patch resource "{GVK.plural}"' in text
                status, text = await act(browser, "scale", job, replicas=3)
                assert status == 403 and f'resource "{GVK.plural}/scale"' in text
                edited = {**job, "metadata": {**job["metadata"], "generation": 2}}
                assert (await act(browser, "delete", edited))[0] == 409
                assert await act(browser, "delete", job) == (200, "pytorchjob/a deleted")
        finally:
            await page_server.stop()


async def test_an_action_on_a_real_server_has_its_preconditions(
    installed: ControlPlane, namespace: str, job: Json
) -> None:
    async with installed.api() as api:
        page_server = PageServer(api, PageOptions("real", "cluster", namespace))
        await page_server.start()
        try:
            async with aiohttp.ClientSession() as http:
                browser = Browser(page_server.url, http)
                await browser.log_in(page_server.link("write"))
                assert await act(browser, "suspend", job) == (200, "pytorchjob/a suspended")
                assert (await act(browser, "resume", job))[0] == 409
                suspended = await api.get(GVK, namespace, "a")
                for change in (
                    set_suspend(api, kinds.PYTORCHJOB, job, True, resource_version="1"),
                    scale(api, kinds.PYTORCHJOB, job, 3, resource_version="1"),
                    delete_job(api, kinds.PYTORCHJOB, job, resource_version="1"),
                ):
                    with pytest.raises(Conflict):
                        await change
                assert await api.get(GVK, namespace, "a") == suspended
                assert await act(browser, "scale", suspended, replicas=3) == (200, "pytorchjob/a scaled from 2 to 3")
        finally:
            await page_server.stop()


async def test_who_may_read_nothing_gets_a_page_that_says_so(
    installed: ControlPlane, namespace: str, job: Json
) -> None:
    async with await limited(installed, namespace, []) as api:
        page_server = PageServer(api, PageOptions("real", "cluster", namespace))
        await page_server.start()
        try:
            async with aiohttp.ClientSession() as http:
                browser = Browser(page_server.url, http)
                await browser.log_in(page_server.link())
                async with browser.live("jobs") as live:
                    await live.frame("hello", lambda frame: "list pods" in frame["forbidden"])
                    # The frame with jobs may have come before the last refusal.
                    jobs = [frame for frame in live.frames if frame["type"] == "jobs"] or [await live.frame("jobs")]
                    assert [frame["rows"] for frame in jobs] == [[]]
                assert (await browser.get(f"v1/jobs/{uid_of(job)}"))[0] == 404
        finally:
            await page_server.stop()
