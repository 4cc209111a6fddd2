"""An admission webhook that holds up what the operator creates: the test decides when it arrives."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.control_plane.fault_stories import Story
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.objects import Json, encode
from trainyard.objects.resources import JOB
from trainyard.server.auth.certificates import CertificateAuthority

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
POD = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
TRIAL = {"metadata": {"name": "trial"}, "spec": {"template": {"spec": POD}}}


class Gate:
    """Jobs wait at it until it is open, but for the first ones; a trial (a dry run) passes."""

    def __init__(self, passes: int) -> None:
        self.passes = passes
        self.trials, self.held = asyncio.Event(), asyncio.Event()
        self.opened = asyncio.Event()

    async def judge(self, request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        if review["dryRun"]:
            self.trials.set()
        elif self.passes:
            self.passes -= 1
        else:
            self.held.set()
            await self.opened.wait()
        answer = {"uid": review["uid"], "allowed": True}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})


@asynccontextmanager
async def gate(story: Story, folder: Path, passes: int = 0) -> AsyncIterator[Gate]:
    """A webhook for every Job that is created in the story's namespace from now on."""
    gate, authority, app = Gate(passes), CertificateAuthority.new(time.time()), web.Application()
    app.router.add_post("/", gate.judge)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=authority.server_context(folder))
    await site.start()
    _, port = runner.addresses[0]
    name, path = f"gate-{story.namespace}", f"/apis/batch/v1/namespaces/{story.namespace}/jobs"
    code, answer = story.plane.ask("POST", HOOKS, _hook(name, story.namespace, port, authority.pem))
    assert code == 201, answer
    try:

        async def is_called() -> bool:
            await story.api.request("POST", path, (("dryRun", "All"),), encode(TRIAL), "application/json")
            return gate.trials.is_set()

        await until_async(is_called, "the API server calls its new webhook", pause=SLOW_PAUSE)
        yield gate
    finally:
        gate.opened.set()
        story.plane.ask("DELETE", f"{HOOKS}/{name}")
        await runner.cleanup()


def _hook(name: str, namespace: str, port: int, trusted: str) -> Json:
    rule = {"apiGroups": [JOB.group], "apiVersions": [JOB.version], "resources": [JOB.plural], "operations": ["CREATE"]}
    hook = {
        "name": "gate.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": base64.b64encode(trusted.encode()).decode()},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "timeoutSeconds": 30,
        "failurePolicy": "Ignore",
        "admissionReviewVersions": ["v1"],
    }
    return {"metadata": {"name": name}, "webhooks": [hook]}
