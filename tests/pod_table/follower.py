"""Runs rows of the table on a cluster: creates the pod, does its steps, and follows it and its events by watch."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientError, ClientSession

from tests.node.node_cluster import running_node
from tests.node.sessions import V5, Talk
from tests.pod_table.rows import GONE, IMAGE, Condition, Create, Delete, Exec, Printed, Row, gone
from tests.pod_table.trace import Names, Trace, trace_of
from tests.support.waiting import NotInTime, until_async
from trainyard.client import ApiClient, ApiError
from trainyard.objects import GVK, Json, decode, name_of, pod_containers, uid_of
from trainyard.objects.resources import CONFIG_MAP, EVENT, NAMESPACE, POD, SECRET

AT_ONCE = 16  # pods: more of them make a node on two CPUs slow
STEP_SECONDS = 120.0  # until the condition of a step, or of a row's end, holds
_PAUSE = 0.05  # between two looks at what the watches have brought
_KINDS = {gvk.kind: gvk for gvk in (CONFIG_MAP, SECRET)}


class Side(msgspec.Struct, frozen=True):
    """Where the pods run. `image`: has `sh`, Python and the usual programs beside it. `changes_users`: the node can run
    programs as other users."""

    api: ApiClient
    namespace: str
    node: str
    image: str
    changes_users: bool = True


@asynccontextmanager
async def our_side() -> AsyncIterator[Side]:
    """Our server and our node, in a namespace and with an image of their own names: other texts of a trace must not
    contain them."""
    with tempfile.TemporaryDirectory(prefix="pod-table-") as state:
        await asyncio.to_thread(Path(state).chmod, 0o755)  # the users of the rows find the image's programs in it
        async with running_node(Path(state), "namespace") as cluster:
            await cluster.api.create(NAMESPACE, "", {"metadata": {"name": "pod-table"}})
            yield Side(cluster.api, "pod-table", "local", "python-of-the-tests", cluster.node.changes_users)


async def in_namespace(side: Side, name: str) -> Side:
    """The same side with a new namespace."""
    await side.api.create(NAMESPACE, "", {"metadata": {"name": name}})
    return msgspec.structs.replace(side, namespace=name)


Accept = Callable[[Row, Trace], object]
"""Whether this trace of the row is as awaited."""


class Follower:
    """What the watches of a namespace have brought: pod name -> its states, and its events."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.pods: dict[str, list[Json]] = {}
        self.events: dict[str, dict[str, Json]] = {}  # pod name -> event name -> its newest state

    async def until(self, name: str, condition: Condition, awaited: str, first: int = 0) -> int:
        """The number of the first state of the pod, from number `first` on, of which the condition is true."""

        def look() -> int | None:
            states = self.pods.get(name, [])
            holds = (number for number in range(first, len(states)) if condition(states[number].get("status") or {}))
            return next(holds, None)

        def context() -> str:
            return json.dumps(self.pods.get(name, [{}])[-1].get("status"), indent=1)

        return await until_async(
            look, awaited, accept=lambda _: True, context=context, seconds=STEP_SECONDS, pause=_PAUSE
        )

    def take_pod(self, event: str, pod: Json) -> None:
        """Of a pod that is deleted its last state is kept, and one more says that it is gone."""
        self.pods.setdefault(name_of(pod), []).append(pod)
        if event == "DELETED":
            self.pods[name_of(pod)].append({**pod, "status": GONE})

    def take_event(self, _: str, event: Json) -> None:
        """An Event whose count has grown keeps its place."""
        self.events.setdefault(event["involvedObject"]["name"], {})[name_of(event)] = event


@asynccontextmanager
async def following(side: Side) -> AsyncIterator[Follower]:
    """A follower that sees every state of every pod that is created in the block."""
    follower = Follower(side)
    opened = [asyncio.Event(), asyncio.Event()]
    tasks = [
        asyncio.create_task(_watch(side, POD, follower.take_pod, opened[0])),
        asyncio.create_task(_watch(side, EVENT, follower.take_event, opened[1])),
    ]
    try:
        await until_async(lambda: all(event.is_set() for event in opened), "both watches are open")
        yield follower
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(side: Side, gvk: GVK, take: Callable[[str, Json], None], opened: asyncio.Event) -> None:
    version = (await side.api.list(gvk, side.namespace))["metadata"]["resourceVersion"]
    while True:
        async with aclosing(side.api.watch(gvk, side.namespace, version, on_open=opened.set)) as lines:
            async for line in lines:
                event = decode(line)
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    take(event["type"], event["object"])


async def run_rows(
    side: Side, rows: Sequence[Row], accept: Accept, seconds: float, at_once: int = AT_ONCE
) -> dict[str, Trace]:
    """Row -> its trace; many run at the same time. Raises an ExceptionGroup of what rows raise."""
    places = asyncio.Semaphore(at_once)
    errors: list[Exception] = []
    traces: dict[str, Trace] = {}

    async def run(row: Row) -> None:
        async with places:
            try:
                traces[row.name] = await _run_row(follower, row, accept, seconds)
            except Exception as error:
                error.add_note(f"row {row.name}")
                errors.append(error)

    async with following(side) as follower:
        await asyncio.gather(*map(run, rows))
    if errors:
        raise ExceptionGroup("rows of the table of pods", errors)
    return traces


async def _run_row(follower: Follower, row: Row, accept: Accept, seconds: float) -> Trace:
    """Run a row to its end. The trace is taken as soon as `accept` is true of it, at the latest `seconds` later: events
    come after the states that they are about, and in no time that is known."""
    side, name = follower.side, row.name
    for obj in row.objects:
        await side.api.create(_KINDS[obj["kind"]], side.namespace, obj)
    spec = _with_image({**row.spec, "nodeName": side.node}, side.image)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **row.metadata}, "spec": spec}
    await side.api.create(POD, side.namespace, pod)
    first = 0
    executed: dict[str, str] = {}
    for number, step in enumerate(row.steps):
        first = await follower.until(name, step.when, f"{name}: step {number + 1} {step}", first)
        executed |= await _do(side, name, number, step)
    last = await follower.until(name, row.end, f"{name}: its end", first)
    pods = [pod for pod in follower.pods[name][: last + 1] if pod["status"] != GONE]
    names = _names(side, pods[-1])

    async def look() -> Trace:
        logs = {} if row.end is gone else await _logs(side, pods[-1], row.with_previous_logs)
        return trace_of(pods, follower.events.get(name, {}).values(), {**logs, **executed}, names, row.with_fields)

    try:
        trace = await until_async(
            look, f"{name}: a known trace", accept=lambda trace: accept(row, trace), seconds=seconds, pause=0.5
        )
    except NotInTime:
        trace = await look()
    if row.end is not gone:
        await side.api.delete(POD, side.namespace, name, grace_period_seconds=0)
    return trace


def _with_image(part: Any, image: str) -> Any:
    if isinstance(part, dict):
        return {key: image if value == IMAGE else _with_image(value, image) for key, value in part.items()}
    return [_with_image(item, image) for item in part] if isinstance(part, list) else part


def _names(side: Side, pod: Json) -> Names:
    status = pod["status"]
    names = {uid_of(pod): "UID", side.namespace: "NAMESPACE", side.image: "IMAGE", side.node: "NODE"}
    # The node may have one address with its pods.
    names |= {status.get("hostIP"): "HOST_IP", status.get("podIP"): "POD_IP"}
    return {text: name for text, name in names.items() if text}


async def _do(side: Side, name: str, number: int, step: object) -> Mapping[str, str]:
    """What the step adds to the logs of the trace."""
    match step:
        case Delete(grace=grace):
            await side.api.delete(POD, side.namespace, name, grace_period_seconds=grace)
        case Create(object=obj):
            await side.api.create(_KINDS[obj["kind"]], side.namespace, obj)
        case Printed(text=text, container=container):
            await _until_printed(side, name, container, text)
        case Exec(command=command, container=container):
            return {f"exec.{number}": await _execute(side, name, container, command)}
    return {}


async def _until_printed(side: Side, pod: str, container: str, text: str) -> None:
    printed = b""
    log = side.api.logs(side.namespace, pod, container, follow=True)
    async with asyncio.timeout(STEP_SECONDS), aclosing(log) as chunks:
        async for chunk in chunks:
            printed += chunk
            if text.encode() in printed:
                return
    raise AssertionError(f"{pod}: {container} ended without having printed {text!r}: {printed!r}")


async def _logs(side: Side, pod: Json, with_previous: bool) -> dict[str, str]:
    logs = {}
    for container, _ in pod_containers(pod):
        name = container["name"]
        logs[name] = await _log(side, name_of(pod), name, previous=False)
        if with_previous:
            logs[f"{name}.previous"] = await _log(side, name_of(pod), name, previous=True)
    return logs


async def _log(side: Side, pod: str, container: str, previous: bool) -> str:
    try:
        chunks = [chunk async for chunk in side.api.logs(side.namespace, pod, container, previous=previous)]
    except ApiError as error:
        return f"refused: {error}"
    return b"".join(chunks).decode(errors="replace")


async def _execute(side: Side, pod: str, container: str, command: tuple[str, ...]) -> str:
    """Exit code, or the reason why there is none, and what the command has printed."""
    endpoint = await side.api.endpoint()
    identity = endpoint.identity
    headers = {"Authorization": f"Bearer {identity.token}"} if identity.token else {}
    query = [("container", container), ("stdout", "1"), ("stderr", "1")]
    query += [("command", argument) for argument in command]
    url = f"{endpoint.url}/api/v1/namespaces/{side.namespace}/pods/{pod}/exec"
    try:
        async with (
            ClientSession(headers=headers) as client,
            client.ws_connect(url, params=query, protocols=[V5], ssl=identity.secure or True) as socket,
        ):
            session = Talk(socket)
            await session.end()
    except ClientError as error:
        return f"refused: {error}"
    printed = f"out {session.out.decode()!r} err {session.err.decode()!r}"
    if session.status.get("reason") in (None, "NonZeroExitCode"):
        return f"{session.code} {printed}"
    return f"{session.status['reason']}: {session.status.get('message')} {printed}"
