"""The page server on a real local cluster, by HTTP and WebSocket: what a browser would send, and what it must not."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.page.browsing import Browser, row_of
from tests.page.tfevents_writer import event, frame, simple
from tests.support.waiting import until_async
from trainyard.app.local import LocalCluster
from trainyard.objects import GVK, Json, uid_of
from trainyard.objects.labels import WORKING_DIRECTORY
from trainyard.objects.resources import POD
from trainyard.page.access import ROUTES
from trainyard.page.listener import PageServer

pytestmark = pytest.mark.slow

TFJOB = GVK("tensorflow.org", "v1alpha1", "TfJob", "tfjobs")


def job(name: str, code: str, replicas: int = 1) -> Json:
    container = {"name": "tensorflow", "image": "example.invalid/x", "command": [sys.executable, "-uc", code]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    roles = [
        {"replicas": 1, "tfReplicaType": "MASTER", "template": template},
        {"replicas": replicas, "tfReplicaType": "WORKER", "template": template},
    ]
    spec = {"replicaSpecs": roles, "backoffLimit": 0}
    return {"apiVersion": TFJOB.api_version, "kind": "TfJob", "metadata": {"name": name}, "spec": spec}


async def test_a_job_appears_runs_and_ends_on_an_open_page(cluster: LocalCluster, browser: Browser) -> None:
    async with browser.live("jobs") as live:
        hello = await live.frame("hello")
        assert (hello["cluster"], hello["mode"], hello["readOnly"]) == ("default", "local", True)
        assert (await live.frame("jobs"))["reset"] is True
        created = await cluster.api.create(TFJOB, "default", job("a", "print('step 1')"))
        await live.frame("jobs", lambda frame: (row_of(frame, "a") or {}).get("state") == "Succeeded")
        uid = uid_of(created)
        await live.socket.send_json({"subscribe": [f"job:{uid}", f"logs:{uid}:*"]})
        ranks = await live.frame("ranks", lambda frame: "Succeeded" in frame["columns"]["state"])
        assert ranks["columns"]["replica"] == ["master-0", "worker-0"]
        details = await live.frame("job", lambda frame: frame["job"]["row"]["state"] == "Succeeded")
        assert details["timeline"][0]["replica"] == "master-0"
        lines = [line for frame in live.frames if frame["type"] == "log" for line in frame["lines"]]
        if not lines:
            lines = (await live.frame("log"))["lines"]
        assert list({text for _, text in lines}) == ["step 1"]


async def test_a_failed_replica_is_named_by_its_finding(cluster: LocalCluster, browser: Browser) -> None:
    created = await cluster.api.create(TFJOB, "default", job("b", "import sys; sys.exit('no data: /tmp/x')"))
    async with browser.live("jobs", f"job:{uid_of(created)}") as live:
        await live.frame("job", lambda frame: "no data: /tmp/x" in json.dumps(frame["findings"]))


async def test_why_a_job_waits_is_in_the_list_in_the_words_of_why(cluster: LocalCluster, browser: Browser) -> None:
    """W22."""
    waiting = job("waits", "")
    for role in waiting["spec"]["replicaSpecs"]:
        role["template"]["spec"]["containers"][0].pop("command", None)
    uid = uid_of(await cluster.api.create(TFJOB, "default", waiting))
    async with browser.live("jobs", f"job:{uid}") as live:
        frame = await live.frame(
            "jobs", lambda frame: "catalogue" in str((row_of(frame, "waits") or {}).get("message"))
        )
        words = (row_of(frame, "waits") or {})["message"]
        await live.frame("job", lambda frame: words in [finding["what"] for finding in frame["findings"]])
    assert words.startswith("master-0, worker-0: it has no command, and no catalogue says which program its image")


async def test_a_process_that_is_stopped_is_found_within_ten_seconds(cluster: LocalCluster, browser: Browser) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    uid = uid_of(await cluster.api.create(TFJOB, "default", job("stopped", code)))
    async with browser.live(f"job:{uid}", f"logs:{uid}:worker-0") as live:
        lines = (await live.frame("log"))["lines"]
        await live.frame("ranks", lambda frame: "memory" in frame["columns"])
        os.kill(pid := int(lines[0][1]), signal.SIGSTOP)
        try:
            async with asyncio.timeout(10), browser.live("jobs", "progress") as jobs:
                words = "worker-0: its process is stopped by a signal (SIGSTOP, SIGTSTP) or a debugger"
                await jobs.frame("progress", lambda frame: (progress_of(frame, uid) or [""])[-1] == words)
                await live.frame("ranks", lambda frame: frame["columns"].get("stoppedPid", [0])[-1])
                await live.frame(
                    "job", lambda frame: "worker-0: its process is stopped" in json.dumps(frame["findings"])
                )
        finally:
            os.kill(pid, signal.SIGCONT)  # a process that is stopped handles no SIGTERM


async def test_a_program_that_is_started_again_shows_its_last_output(cluster: LocalCluster, browser: Browser) -> None:
    again = job("again", "import sys; print('I failed'); sys.exit(137)")
    again["spec"]["backoffLimit"] = 100
    for role in again["spec"]["replicaSpecs"]:
        role["template"]["spec"]["restartPolicy"] = "OnFailure"
    uid = uid_of(await cluster.api.create(TFJOB, "default", again))
    async with browser.live(f"job:{uid}") as live:
        await live.frame("ranks", lambda frame: "CrashLoopBackOff" in frame["columns"]["state"])
    async with browser.live(f"logs:{uid}:*") as live:
        await live.frame("log", lambda frame: "I failed" in [text for _, text in frame["lines"]])


async def test_tabs_on_a_program_that_prints_as_fast_as_it_can_leave_the_api_alone(
    cluster: LocalCluster, browser: Browser
) -> None:
    printing = job("yes", "while True: print('y' * 200)")
    uid = uid_of(await cluster.api.create(TFJOB, "default", printing))
    async with browser.live(f"logs:{uid}:*") as live, browser.live(f"logs:{uid}:*") as other:
        for tab in (live, other):
            await tab.frame("log", lambda frame: frame["leftOut"] > 1 << 20)
        async with asyncio.timeout(30):
            assert len((await cluster.api.list(POD, "default"))["items"]) == 2
            await cluster.api.delete(TFJOB, "default", "yes")


async def test_logs_are_read_by_range_and_downloaded_whole(
    cluster: LocalCluster, page_server: PageServer, browser: Browser
) -> None:
    created = await cluster.api.create(
        TFJOB, "default", job("c", "print('x' * 1000); print('<script>alert(1)</script>')")
    )
    uid, text = uid_of(created), b"x" * 1000 + b"\n<script>alert(1)</script>\n"
    async with browser.live(f"job:{uid}") as live:
        await live.frame("job", lambda frame: frame["job"]["row"]["state"] == "Succeeded")
    _, listed, _ = await browser.get(f"v1/jobs/{uid}/logs")
    file = next(log_file["file"] for log_file in listed["files"] if log_file["replica"] == "master-0")
    status, body, headers = await browser.get(f"v1/jobs/{uid}/logs/{file}?offset=-26&limit=100")
    assert (status, body) == (200, text[-26:])
    assert (headers["X-Log-Size"], headers["X-Log-Offset"], headers["X-Log-Next"]) == ("1027", "1001", "1027")
    ticket_url = f"{browser.url}v1/tickets"
    async with browser.http.post(
        ticket_url, json={"path": f"jobs/{uid}/logs/{file}"}, headers=browser.headers
    ) as answer:
        ticket = (await answer.json())["ticket"]
    browser.session = ""  # a download link carries no header
    assert (await browser.get(f"v1/download/{ticket}"))[1] == text
    assert (await browser.get(f"v1/download/{ticket}"))[0] == 404
    assert (await browser.get(f"v1/jobs/{uid}/logs/{file}"))[0] == 401
    await browser.log_in(page_server.link())
    for other in ("../job", "%2e%2e/%2e%2e/job.yaml", "master-0/attempt-0-x/tensorflow/1", "x"):
        assert (await browser.get(f"v1/jobs/{uid}/logs/{other}"))[0] == 404


async def test_a_job_that_is_gone_is_shown_from_the_history(cluster: LocalCluster, browser: Browser) -> None:
    created = await cluster.api.create(TFJOB, "default", job("gone", "print('it was here')"))
    uid = uid_of(created)
    async with browser.live("jobs") as live:
        await live.frame("jobs", lambda frame: (row_of(frame, "gone") or {}).get("state") == "Succeeded")
        await cluster.api.delete(TFJOB, "default", "gone")
        frame = await live.frame("jobs", lambda frame: (row_of(frame, "gone") or {}).get("live") is False)
    assert (row_of(frame, "gone") or {})["uid"] == uid
    status, page, _ = await browser.get(f"v1/jobs/{uid}")
    assert status == 200 and page["job"]["row"]["name"] == "gone"
    _, body, _ = await browser.get(f"v1/jobs/{uid}/logs/{page['logs'][0]['file']}")
    assert body == b"it was here\n"
    assert b"kind: TfJob" in (await browser.get(f"v1/jobs/{uid}/yaml"))[1]


async def test_what_programs_report_is_a_curve_also_after_the_end(cluster: LocalCluster, browser: Browser) -> None:
    code = "for n in range(5): print(f'step {n} loss {1 / (n + 1)}')"
    uid = uid_of(await cluster.api.create(TFJOB, "default", job("curves", code, replicas=2)))
    async with browser.live("jobs", f"job:{uid}") as live:
        # The job has succeeded when its master has: its deletion would end a worker that has not printed yet.
        await live.frame("ranks", lambda frame: set(frame["columns"]["state"]) == {"Succeeded"})
        await cluster.api.delete(TFJOB, "default", "curves")
        await live.frame("jobs", lambda frame: (row_of(frame, "curves") or {}).get("live") is False)
    async with asyncio.timeout(20):
        answer: Json = {"spread": []}
        while not answer["spread"] or answer["spread"][0]["replicas"] < 3:
            _, answer, _ = await browser.get(f"v1/jobs/{uid}/series")
    assert (answer["names"], answer["sources"]) == (["loss"], {"loss": ["pattern"]})
    [loss] = answer["series"]
    assert (loss["replica"], loss["step"], loss["value"]) == ("master-0", [0, 1, 2, 3, 4], [1 / n for n in range(1, 6)])
    _, of_worker, _ = await browser.get(f"v1/jobs/{uid}/series?names=loss&replicas=worker-1&points=2")
    assert [(series["replica"], len(series["step"])) for series in of_worker["series"]] == [("worker-1", 2)]
    assert (await browser.get(f"v1/jobs/{uid}/series?points=3000"))[0] == 400
    assert (await browser.get("v1/jobs/unknown/series"))[1]["names"] == []


async def test_runs_are_compared_live_and_with_one_of_the_history(
    cluster: LocalCluster, browser: Browser, tmp_path: Path
) -> None:
    uids, end = [], tmp_path / "end"
    for name, rate in (("first", 0.1), ("second", 0.05)):
        code = f"import os, time; print('step 2 loss {rate}')\nwhile not os.path.exists({str(end)!r}): time.sleep(0.02)"
        created = job(name, code)
        env = {"LR": str(rate), "API_KEY": f"{name}-of-the-canaries"}
        for role in created["spec"]["replicaSpecs"]:
            role["template"]["spec"]["containers"][0]["env"] = [{"name": key, "value": env[key]} for key in env]
        uids.append(uid_of(await cluster.api.create(TFJOB, "default", created)))

    async def compared(condition: Any) -> Json:
        """The answer as soon as the condition is true for both runs."""

        async def look() -> Json:
            status, answer, _ = await browser.get(f"v1/compare?jobs={','.join(uids)},gone")
            assert status == 200 and len(answer["runs"]) == 2
            return dict(answer)

        return await until_async(
            look, "the condition of both runs", accept=lambda answer: all(map(condition, answer["runs"]))
        )

    await compared(lambda run: run["state"] == "Running" and run["peakMemory"] and run["metrics"])
    end.touch()
    await compared(lambda run: run["state"] == "Succeeded")
    async with browser.live("jobs") as live:
        await cluster.api.delete(TFJOB, "default", "first")
        await live.frame("jobs", lambda frame: (row_of(frame, "first") or {}).get("live") is False)
    # The record of a job is written after its deletion has been seen.
    answer = await compared(lambda run: run["state"] == "Succeeded" and run["peakMemory"] and run["metrics"])
    values = [(run["uid"], run["name"], run["state"], run["restarts"], run["metrics"]) for run in answer["runs"]]
    assert values == [
        (uids[0], "first", "Succeeded", 0, {"loss": 0.1}),
        (uids[1], "second", "Succeeded", 0, {"loss": 0.05}),
    ]
    assert all(run["created"] <= run["started"] <= run["ended"] for run in answer["runs"])
    listed = {difference["field"]: difference["values"] for difference in answer["differences"]}
    assert listed["env LR"] == ["0.1", "0.05"] and listed["env API_KEY"] == ["(masked)"] * 2
    assert listed.keys() == {"command", "env LR", "env API_KEY"}
    assert answer["unknown"] == ["gone"] and "canaries" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("jobs", "text"), [("", "no jobs"), ("a", "one job"), ("a,a", "one job"), ("a,b,c,d,e,f,g,h,i", "9 jobs")]
)
async def test_a_bad_number_of_runs_is_named(browser: Browser, jobs: str, text: str) -> None:
    status, answer, _ = await browser.get(f"v1/compare?jobs={jobs}")
    assert status == 400 and text in answer["error"] and "choose 2 to 8" in answer["error"]


async def test_steps_and_losses_are_in_the_list_also_after_the_end(
    cluster: LocalCluster, browser: Browser, tmp_path: Path
) -> None:
    code = "import pathlib, sys, time\nfor n in range(5): print(f'step {n} loss {1 / (n + 1)}', flush=True)\n"
    code += f"while not pathlib.Path({str(tmp_path / 'end')!r}).exists(): time.sleep(0.02)\nprint('step 7 loss 0.125')"
    uid = uid_of(await cluster.api.create(TFJOB, "default", job("steps", code, replicas=2)))

    def is_at(step: float) -> Callable[[Json], bool]:
        return lambda frame: (progress_of(frame, uid) or [uid, None])[1] == step

    async with browser.live("jobs", "progress") as live:
        frame = await live.frame("progress", is_at(4.0))
        assert frame["columns"] == ["uid", "step", "loss", "shape", "why"]
        assert progress_of(frame, uid)[:3] == [uid, 4.0, 0.2]
        received = len(live.frames)
        (tmp_path / "end").touch()
        await live.frame("progress", is_at(7.0))
        rows = [row_of(frame, "steps") for frame in live.frames[received:] if frame["type"] == "jobs"]
        assert len([row for row in rows if row]) <= 4  # it ends; that its step has grown is not in its row
    await cluster.api.delete(TFJOB, "default", "steps")
    async with browser.live("jobs", "progress") as live:
        frame = await live.frame("progress", lambda frame: progress_of(frame, uid))
    _, step, loss, shape, _ = progress_of(frame, uid)
    assert (step, loss, shape[0], shape[-1]) == (7.0, 0.125, "z", "0")


def progress_of(frame: Json, uid: str) -> Any:
    """The row of a job in a frame; None without one."""
    return next((row for row in frame["rows"] if row[0] == uid), None)


async def test_event_files_in_the_working_directory_are_curves(
    cluster: LocalCluster, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "runs" / "train" / "events.out.tfevents.1.host"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"".join(frame(event(step, time.time(), simple("loss", 0.5))) for step in range(3)))
    tf_job = job("board", "pass")
    tf_job["metadata"]["annotations"] = {WORKING_DIRECTORY: str(tmp_path)}
    uid = uid_of(await cluster.api.create(TFJOB, "default", tf_job))
    async with browser.live("jobs") as live:
        await live.frame("jobs", lambda frame: (row_of(frame, "board") or {}).get("state") == "Succeeded")
    _, answer, _ = await browser.get(f"v1/jobs/{uid}/series")
    assert answer["sources"] == {"train/loss": ["runs/train"]}
    assert answer["series"][0]["step"] == [0, 1, 2]
    assert answer["corrupt"] == []
    with file.open("ab") as damaged:
        damaged.write(b"\xff" * 40)
    _, answer, _ = await browser.get(f"v1/jobs/{uid}/series")
    assert answer["corrupt"] == [str(file)]


async def test_the_yaml_has_no_managed_fields(cluster: LocalCluster, browser: Browser) -> None:
    created = await cluster.api.create(TFJOB, "default", job("d", "pass"))
    status, text, _ = await browser.get(f"v1/jobs/{uid_of(created)}/yaml")
    assert status == 200 and b"managedFields" not in text and b"name: d" in text


async def test_the_cluster_is_watched_only_while_a_page_is_open(
    cluster: LocalCluster, page_server: PageServer, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainyard.page.observation.LINGER_SECONDS", 0.0)
    verbs, listed = cluster.server.verbs, ("list", "jaxjobs")
    before = verbs[listed]
    await browser.get("")
    assert verbs[listed] == before
    async with browser.live("jobs") as live:
        await live.frame("jobs")
        assert verbs[listed] == before + 1
        async with browser.live("jobs") as second:
            await second.frame("jobs")
        assert verbs[listed] == before + 1
    assert page_server.pages is not None
    pages = page_server.pages
    await until_async(lambda: not pages.observes, "the cluster is no longer watched")


# Who may not.


async def test_an_invitation_is_valid_once(page_server: PageServer) -> None:
    async with aiohttp.ClientSession() as http:
        browser, link = Browser(page_server.url, http), page_server.link()
        assert await browser.log_in(link) == 200
        assert await browser.log_in(link) == 401


@pytest.mark.parametrize("route", [route for route in ROUTES if route.scope in ("session", "write")], ids=str)
async def test_without_a_session_there_is_no_data(page_server: PageServer, route: Any) -> None:
    path = route.path.replace("{uid}", "u").replace("{file*}", "f")
    async with aiohttp.ClientSession() as http:
        for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {page_server.sessions.key}"}):
            url = page_server.url.removesuffix("/ui/") + path
            async with http.request(
                route.method, url, headers=headers, json={} if route.method == "POST" else None
            ) as got:
                assert got.status == 401, await got.text()


@pytest.mark.parametrize(
    "method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW"]
)
async def test_any_other_verb_is_refused_on_every_route(page_server: PageServer, method: str) -> None:
    paths = {route.path for route in ROUTES} | {"/", "/api", "/ui", "/ui/v1", "/ui/v1/action"}
    async with aiohttp.ClientSession() as http:
        for path in paths - {route.path for route in ROUTES if route.method == method}:
            concrete = path.partition("{")[0] + ("x" if "{" in path else "")
            url = page_server.url.removesuffix("/ui/") + concrete
            async with http.request(method, url, allow_redirects=False) as got:
                assert got.status in (401, 404, 405, 400), (method, path, got.status)


async def test_every_response_has_the_headers_of_the_policy(page_server: PageServer) -> None:
    async with aiohttp.ClientSession() as http:
        for path in ("", "v1/live", "nowhere", "v1/session"):
            async with http.get(f"{page_server.url}{path}") as got:
                assert "require-trusted-types-for 'script'" in got.headers["Content-Security-Policy"]
                assert got.headers["X-Content-Type-Options"] == "nosniff"
                assert got.headers["Referrer-Policy"] == "no-referrer"
                assert "Set-Cookie" not in got.headers


async def test_a_foreign_host_or_page_is_refused_before_anything_else(
    page_server: PageServer, browser: Browser
) -> None:
    for headers, status in (({"Host": "evil.example"}, 421), ({"Origin": "http://127.0.0.1:1"}, 403)):
        for path in ("", "v1/live", "v1/jobs/u"):
            async with browser.http.get(f"{page_server.url}{path}", headers=browser.headers | headers) as got:
                assert got.status == status
    async with browser.http.post(f"{page_server.url}v1/session", data={"token": "x"}) as got:
        assert got.status == 415  # a form


async def test_the_owner_of_the_key_gets_a_link_and_nobody_else_does(page_server: PageServer) -> None:
    async with aiohttp.ClientSession() as http:
        url = f"{page_server.url}v1/invitations"
        async with http.post(url, headers={"Authorization": "Bearer guess"}) as got:
            assert got.status == 401
        async with http.post(url, headers={"Authorization": f"Bearer {page_server.sessions.key}"}) as got:
            link = (await got.json())["link"]
        assert await Browser(page_server.url, http).log_in(link) == 200


async def test_the_page_and_its_files_are_served_with_a_version(page_server: PageServer) -> None:
    async with aiohttp.ClientSession() as http:
        async with http.get(page_server.url) as got:
            page = await got.text()
            assert got.content_type == "text/html" and got.headers["Cache-Control"] == "no-store"
        path = page.partition('src="')[2].partition('"')[0]
        assert path.startswith("static/") and "@" not in path
        async with http.get(page_server.url + path) as got:
            assert got.status == 200 and got.content_type == "text/javascript"
            assert "immutable" in got.headers["Cache-Control"]
        for other in ("static/x/app.js", f"{path.rpartition('/')[0]}/../../../etc/passwd", f"{path}x"):
            async with http.get(page_server.url + other) as got:
                assert got.status == 404


async def test_pages_hear_why_the_page_server_ends(page_server: PageServer, browser: Browser) -> None:
    async with browser.live("jobs") as live:
        await live.frame("hello")
        await page_server.stop("the cluster stops")
        assert (await live.frame("bye"))["reason"] == "the cluster stops"
