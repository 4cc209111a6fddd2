"""What changes jobs through the page server: who may, what a change does, and when it is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from tests.cli.commands import SLEEP, elastic, role, tfjob
from tests.page.browsing import Browser, act
from tests.support.watched_objects import until_object
from trainyard.app.local import LocalCluster
from trainyard.client import ApiClient, NotFound
from trainyard.kinds import ELASTICJOB, TFJOB
from trainyard.objects import GVK, Json, is_deleting, resource_version_of, uid_of
from trainyard.page.access import ROUTES
from trainyard.page.listener import PageServer
from trainyard.views.job_view import job_state

pytestmark = pytest.mark.slow

ELASTIC, TF = ELASTICJOB.gvk, TFJOB.gvk
SCALE = {"role": "Worker", "replicas": 2, "least": 2, "most": 3}


@pytest.fixture
async def writer(page_server: PageServer) -> AsyncIterator[Browser]:
    """A page that may change jobs."""
    async with aiohttp.ClientSession() as http:
        browser = Browser(page_server.url, http)
        assert await browser.log_in(page_server.link("write")) == 200
        yield browser


async def until_state(api: ApiClient, gvk: GVK, name: str, state: str) -> Json:
    return await until_object(api, gvk, "default", name, lambda job: job_state(job) == state, f"{name} is {state}")


async def suspended_job(cluster: LocalCluster, name: str = "mnist") -> Json:
    """A job that nobody changes any more."""
    await cluster.api.create(TF, "default", tfjob(name=name, suspend=True))
    return await until_state(cluster.api, TF, name, "Suspended")


async def offered_verbs(browser: Browser, job: Json) -> list[str]:
    async with browser.live(f"job:{uid_of(job)}") as live:
        verbs: list[str] = (await live.frame("actions"))["actions"]["verbs"]
        return verbs


def spec_of(job: Json) -> tuple[Any, ...]:
    """What an action changes of a job. Its status is the operator's."""
    return uid_of(job), is_deleting(job), job["spec"]


async def spec(cluster: LocalCluster) -> tuple[Any, ...]:
    return spec_of(await cluster.api.get(TF, "default", "mnist"))


async def test_a_page_that_may_suspends_resumes_scales_and_deletes(cluster: LocalCluster, writer: Browser) -> None:
    created = await cluster.api.create(ELASTIC, "default", elastic(SLEEP))
    async with writer.live(f"job:{uid_of(created)}") as live:
        assert (await live.frame("hello"))["readOnly"] is False
        offered = await live.frame("actions")
        assert offered["actions"] == {"generation": 1, "verbs": ["suspend", "scale", "delete"], "scale": SCALE}
        assert await act(writer, "suspend", created) == (200, "elasticjob/imagenet suspended")
        await live.frame("actions", lambda frame: frame["actions"]["verbs"] == ["resume", "scale", "delete"])
        job = await cluster.api.get(ELASTIC, "default", "imagenet")
        assert await act(writer, "resume", job) == (200, "elasticjob/imagenet resumed")
        job = await cluster.api.get(ELASTIC, "default", "imagenet")
        assert await act(writer, "scale", job, replicas=3) == (200, "elasticjob/imagenet scaled from 2 to 3")
        await live.frame("job", lambda frame: frame["job"]["row"]["running"] == 3)
        job = await cluster.api.get(ELASTIC, "default", "imagenet")
        assert await act(writer, "delete", job) == (200, "elasticjob/imagenet deleted")
    with pytest.raises(NotFound):
        await cluster.api.get(ELASTIC, "default", "imagenet")


async def test_a_page_that_only_reads_is_told_how_to_get_the_right(cluster: LocalCluster, browser: Browser) -> None:
    job = await suspended_job(cluster)
    async with browser.live() as live:
        assert (await live.frame("hello"))["readOnly"] is True
    for verb in ("suspend", "resume", "scale", "delete", "x"):
        status, text = await act(browser, verb, job, replicas=1)
        assert status == 403 and "`trainyard ui --write`" in text
    assert await spec(cluster) == spec_of(job)


async def test_no_verb_of_any_route_lets_a_page_that_reads_change_a_job(
    cluster: LocalCluster, page_server: PageServer, browser: Browser
) -> None:
    """Each request has the body that deletes the job in a session that may."""
    job = await suspended_job(cluster)
    body = {"verb": "delete", "uid": uid_of(job), "generation": job["metadata"]["generation"], "write": True}
    for route in ROUTES:
        path = route.path.replace("{uid}", uid_of(job)).replace("{file*}", "f")
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - (
            {"GET"} if route.handler == "live" else set()  # it has no end
        ):
            url = page_server.url.removesuffix("/ui/") + path
            async with browser.http.request(method, url, json=body, headers=browser.headers) as answer:
                assert answer.status in (403, 404, 405) or route.scope != "write"
    assert await spec(cluster) == spec_of(job)


async def test_a_request_that_our_page_has_not_sent_changes_nothing(
    cluster: LocalCluster, page_server: PageServer, writer: Browser
) -> None:
    """Of a foreign page, as a form, or without the header: the right alone is not enough."""
    job = await suspended_job(cluster)
    url, body = f"{page_server.url}v1/actions", {"verb": "delete", "uid": uid_of(job), "generation": 1}
    foreign: dict[str, Any]
    for foreign, status in (
        ({"json": body, "headers": writer.headers | {"Origin": "http://evil.example"}}, 403),
        ({"json": body, "headers": writer.headers | {"Origin": "http://127.0.0.1:1"}}, 403),
        ({"json": body, "headers": writer.headers | {"Sec-Fetch-Site": "same-site"}}, 403),
        ({"json": body, "headers": writer.headers | {"Host": "evil.example"}}, 421),
        ({"data": body, "headers": writer.headers}, 415),
        ({"data": b"{}", "headers": writer.headers | {"Content-Type": "text/plain"}}, 415),
        ({"json": body}, 401),
        ({"json": body, "headers": {"Authorization": f"Bearer {page_server.sessions.key}"}}, 401),
    ):
        async with writer.http.post(url, **foreign) as answer:
            assert answer.status == status, (foreign, await answer.text())
    assert await spec(cluster) == spec_of(job)


@pytest.mark.parametrize("verb", ["resume", "delete"])
async def test_a_job_that_was_replaced_is_not_changed(cluster: LocalCluster, writer: Browser, verb: str) -> None:
    shown = await suspended_job(cluster)
    async with writer.live("jobs") as live:
        await live.frame("jobs")
        await cluster.api.delete(TF, "default", "mnist")
        replacement = await suspended_job(cluster)
        status, text = await act(writer, verb, shown)
    assert status == 409 and "nothing was changed" in text
    assert await spec(cluster) == spec_of(replacement)


@pytest.mark.parametrize("verb", ["resume", "delete"])
async def test_a_job_that_is_replaced_before_the_page_server_sees_it_is_not_changed(
    cluster: LocalCluster, writer: Browser, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, get = await suspended_job(cluster), cluster.api.get
    replacements: list[Json] = []

    async def replaced(gvk: GVK, namespace: str, name: str, subresource: str = "") -> Json:
        monkeypatch.setattr(cluster.api, "get", get)
        await cluster.api.delete(TF, "default", "mnist")
        replacements.append(await suspended_job(cluster))
        return await get(gvk, namespace, name, subresource)

    async with writer.live("jobs") as live:
        await live.frame("jobs")
        monkeypatch.setattr(cluster.api, "get", replaced)
        status, text = await act(writer, verb, shown)
    assert status == 409 and "was deleted meanwhile, and another one has its name" in text
    assert replacements[0]["metadata"]["generation"] == shown["metadata"]["generation"]
    assert await spec(cluster) == spec_of(replacements[0])


@pytest.mark.parametrize("verb", ["resume", "delete"])
async def test_a_job_that_was_edited_is_not_changed(cluster: LocalCluster, writer: Browser, verb: str) -> None:
    shown = await suspended_job(cluster)
    edited = await cluster.api.patch(TF, "default", "mnist", {"spec": {"backoffLimit": 3}})
    status, text = await act(writer, verb, shown)
    assert (status, text) == (
        409,
        "TfJob default/mnist was changed meanwhile: look at it again; nothing was changed",
    )
    assert await spec(cluster) == spec_of(edited)


@pytest.mark.parametrize("verb", ["resume", "delete"])
async def test_an_edit_between_comparison_and_write_is_seen(
    cluster: LocalCluster, writer: Browser, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write has the resourceVersion of what was compared, so that the server refuses it."""
    shown, get = await suspended_job(cluster), cluster.api.get
    edits: list[Json] = []

    async def edited_after(gvk: GVK, namespace: str, name: str, subresource: str = "") -> Json:
        job = await get(gvk, namespace, name, subresource)
        if gvk == TF and not edits:
            edits.append(await cluster.api.patch(TF, "default", "mnist", {"spec": {"backoffLimit": 3}}))
        return job

    monkeypatch.setattr(cluster.api, "get", edited_after)
    status, text = await act(writer, verb, shown)
    assert status == 409 and "was changed meanwhile" in text
    assert await spec(cluster) == spec_of(edits[0])


@pytest.mark.parametrize("verb", ["resume", "delete"])
async def test_a_job_of_which_only_the_status_changes_is_changed(
    cluster: LocalCluster, writer: Browser, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that starts a thousand replicas has another resourceVersion with each."""
    shown, get = await suspended_job(cluster), cluster.api.get
    versions: set[str] = set()

    async def changing(gvk: GVK, namespace: str, name: str, subresource: str = "") -> Json:
        job = await get(gvk, namespace, name, subresource)
        if gvk == TF and len(versions) < 3:
            note = {"metadata": {"annotations": {"note": str(len(versions))}}}
            versions.add(resource_version_of(await cluster.api.patch(TF, "default", "mnist", note)))
        return job

    monkeypatch.setattr(cluster.api, "get", changing)
    assert (await act(writer, verb, shown))[0] == 200
    assert len(versions) == 3


async def test_what_the_server_refuses_is_passed_on_as_it_says_it(cluster: LocalCluster, writer: Browser) -> None:
    manifest = elastic(SLEEP, suspend=True)
    del manifest["spec"]["minReplicas"]
    job = await cluster.api.create(ELASTIC, "default", manifest)
    status, text = await act(writer, "scale", job, replicas=0)
    assert status == 422 and "must be greater than or equal to 1" in text


async def test_a_kind_without_scale_does_not_offer_it(cluster: LocalCluster, writer: Browser) -> None:
    job = await suspended_job(cluster)
    assert await offered_verbs(writer, job) == ["resume", "delete"]
    status, text = await act(writer, "scale", job, replicas=2)
    assert status == 409 and "cannot be scaled while it runs" in text


async def test_a_job_that_has_ended_can_only_be_deleted(cluster: LocalCluster, writer: Browser) -> None:
    await cluster.api.create(TF, "default", tfjob(role("MASTER", "print(1)")))
    job = await until_state(cluster.api, TF, "mnist", "Succeeded")
    assert await offered_verbs(writer, job) == ["delete"]
    assert await act(writer, "suspend", job) == (
        409,
        "tfjob/mnist has ended (Succeeded): there is nothing to suspend",
    )
    assert (await act(writer, "delete", job))[0] == 200
    assert (await act(writer, "delete", job))[0] == 409


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"verb": "delete"},
        {"verb": "delete", "uid": 1, "generation": 1},
        {"verb": "delete", "uid": "u", "generation": "1"},
        {"verb": "delete", "uid": "u", "generation": 1, "force": True},
    ],
    ids=str,
)
async def test_a_body_that_is_no_action_is_refused(writer: Browser, body: Json) -> None:
    async with writer.http.post(f"{writer.url}v1/actions", json=body, headers=writer.headers) as answer:
        assert answer.status == 400


@pytest.mark.parametrize("more", [{"verb": "scale"}, {"verb": "scale", "replicas": -1}, {"verb": "restart"}], ids=str)
async def test_an_action_that_does_not_exist_is_refused(
    cluster: LocalCluster, writer: Browser, more: dict[str, Any]
) -> None:
    job = await suspended_job(cluster)
    status, text = await act(writer, job=job, **more)
    assert status == 400 and "is no action" in text


async def test_the_owner_of_the_key_may_ask_for_the_right(page_server: PageServer) -> None:
    async with aiohttp.ClientSession() as http:
        url, key = f"{page_server.url}v1/invitations", {"Authorization": f"Bearer {page_server.sessions.key}"}
        async with http.post(url, json={"write": True}, headers={"Authorization": "Bearer guess"}) as answer:
            assert answer.status == 401
        async with http.post(url, data={"write": "true"}, headers=key) as answer:
            assert answer.status == 415
        for body, right in (({"write": True}, "write"), ({"write": "true"}, "read"), ({}, "read")):
            async with http.post(url, json=body, headers=key) as answer:
                browser = Browser(page_server.url, http)
                await browser.log_in((await answer.json())["link"])
                assert page_server.sessions.right_of(browser.session) == right
