"""A server that plays sequences. Each run has a namespace of its own, with its ServiceAccount and nothing else.

Rules for this file:
- On a real control plane the controllers and the scheduler must be stopped: nobody but the sequence writes.
- Namespaces are left behind: the cluster is thrown away.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from tests.differential.bodies import DEFINITIONS
from tests.differential.normal import HEADERS, normal
from tests.differential.steps import Answer, Step, Unresolved, resolved
from tests.support.control_plane import ControlPlane
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.objects import Json, decode, encode
from trainyard.server import Server
from trainyard.server.auth.certificates import CertificateAuthority

CONTROLLERS = ("kube-controller-manager", "kube-scheduler")
WATCH_SECONDS = 1
ANSWER_SECONDS = 30.0


class Target:
    """One server, whichever."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str = "") -> None:
        self._session, self._url = session, url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._numbers = itertools.count(1)

    async def furnish(self) -> None:
        """Posts the definitions, and returns when they are served."""
        for definition in DEFINITIONS:
            step = Step("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=definition)
            answer = await self.ask(step)
            assert answer.code in (201, 409), answer
            spec = definition["spec"]
            for version in spec["versions"]:
                path = f"/apis/{spec['group']}/{version['name']}/namespaces/default/{spec['names']['plural']}"
                await until_async(
                    lambda path=path: self.ask(Step("GET", path)),
                    f"{path} is served",
                    accept=lambda answer: answer.code == 200,
                    seconds=ANSWER_SECONDS,
                    pause=SLOW_PAUSE,
                )

    async def play(self, steps: Sequence[Step]) -> list[Json]:
        """The normalized answers to a sequence."""
        namespace = f"fuzz-run-{next(self._numbers):06d}"
        await self._make_namespace(namespace)
        answers: list[Answer] = []
        for step in steps:
            try:
                answers.append(await self.ask(resolved(step, answers, namespace)))
            except Unresolved:
                answers.append(Answer(0))
            except (aiohttp.ClientError, TimeoutError) as error:
                answers.append(Answer(-1, body=type(error).__name__))
        return normal(answers, namespace, [name for name in map(_asked, steps) if name])

    async def _make_namespace(self, name: str) -> None:
        """What the controllers of a cluster would put into it is put there by hand, or taken away."""
        await self._must(Step("POST", "/api/v1/namespaces", body=_named("Namespace", name)))
        account = _named("ServiceAccount", "default")
        await self._must(Step("POST", f"/api/v1/namespaces/{name}/serviceaccounts", body=account))

    async def _must(self, step: Step) -> None:
        answer = await self.ask(step)
        assert answer.code in (201, 409), answer

    async def ask(self, step: Step) -> Answer:
        query = dict(step.query)
        if step.watches:
            query["timeoutSeconds"] = str(WATCH_SECONDS)
        headers = {**self._headers, **({"Accept": step.accept} if step.accept else {})}
        data = _sent(step)
        if data is not None:
            headers["Content-Type"] = step.type or "application/json"
        async with self._session.request(
            step.do, self._url + step.path, params=query, data=data, headers=headers, skip_auto_headers=["Content-Type"]
        ) as got:
            body = await got.read()
            shown: dict[str, Any] = {name: got.headers[name] for name in HEADERS if name in got.headers}
            if "Warning" in got.headers:
                shown["Warning"] = got.headers.getall("Warning")
            lines = step.watches and got.status == 200
            return Answer(got.status, shown, _lines(body) if lines else _read(body))


def _asked(step: Step) -> str:
    """What a name shall begin with that the server makes up."""
    meta = step.body.get("metadata") if isinstance(step.body, dict) else None
    name = meta.get("generateName") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else ""


def _named(kind: str, name: str) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def _sent(step: Step) -> bytes | None:
    if step.raw:
        return step.raw.encode()
    return None if step.body is None else encode(step.body)


def _lines(body: bytes) -> list[Any]:
    return [_read(line) for line in body.splitlines() if line.strip()]


def _read(body: bytes) -> Any:
    try:
        return decode(body)
    except ValueError:
        return body.decode(errors="replace")


@asynccontextmanager
async def embedded(server: Server | None = None) -> AsyncIterator[Target]:
    """The embedded server, with nothing around it. Pods can reach it, so they get tokens, as in a cluster."""
    server = server or Server()
    await server.start()
    with tempfile.TemporaryDirectory() as folder:
        await server.start_tls(CertificateAuthority.new(time.time()).server_context(Path(folder)))
    try:
        async with _session() as session:
            target = Target(session, server.url)
            await target.furnish()
            yield target
    finally:
        await server.stop()


@asynccontextmanager
async def real(plane: ControlPlane) -> AsyncIterator[Target]:
    """A control plane that is up and belongs to the caller: its controllers are stopped here."""
    for name in CONTROLLERS:
        plane.stop(name)
    async with _session(aiohttp.TCPConnector(ssl=plane.identities.secure(), limit=0)) as session:
        target = Target(session, plane.url, plane.token())
        await target.furnish()
        yield target


def _session(connector: aiohttp.TCPConnector | None = None) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))
