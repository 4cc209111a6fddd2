"""A server of the page whose frames tests make up: for states that a cluster does not get into on demand.

It serves the real assets with the real headers, so that what the browser refuses in the product it refuses here too.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from aiohttp import WSMsgType, web

from trainyard.page.access import response_headers
from trainyard.page.assets import load_assets
from trainyard.page.job_progress import PROGRESS_COLUMNS
from trainyard.views.comparison import refusal

Result = TypeVar("Result")
TOKEN, SESSION = "an-invitation", "a-session"
COLUMNS = (
    "uid namespace kind name state running replicas restarts created started ended message live".split()  # noqa: SIM905
)
ROWS_PER_FRAME = 2000


class CannedServer:
    """Runs in a thread of its own. What a page has subscribed to is sent from `jobs`, `job_frames` and `log_frames`."""

    def __init__(self) -> None:
        self.hello: dict[str, Any] = {"cluster": "default", "mode": "local", "readOnly": True, "forbidden": []}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.job_frames: dict[str, list[dict[str, Any]]] = {}
        self.log_frames: dict[str, list[dict[str, Any]]] = {}  # by job
        self.logs: dict[str, dict[str, bytes]] = {}  # by job, then by file
        self.manifests: dict[str, str] = {}
        self.series: dict[str, dict[str, Any]] = {}  # by job, or by job and replica
        self.differences: list[dict[str, Any]] = []
        self.peaks: dict[str, int] = {}  # the peak memory of jobs
        self.actions: list[dict[str, Any]] = []  # that pages have asked for
        self.action_answer = 200, "done"  # the status code and the sentence for the next ones
        self.progress: dict[str, list[Any]] = {}  # by job
        self.requests: list[str] = []
        self.port = 0
        self._sockets: dict[web.WebSocketResponse, list[str]] = {}
        self._loop = asyncio.new_event_loop()
        self._runner: web.ServerRunner | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    # What tests call.

    @property
    def link(self) -> str:
        return f"http://127.0.0.1:{self.port}/ui/#token={TOKEN}"

    @property
    def connections(self) -> int:
        """The number of open pages."""
        return len(self._sockets)

    @property
    def topics(self) -> list[list[str]]:
        """What each open page has subscribed to."""
        return list(self._sockets.values())

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._call(self._start())

    def stop(self) -> None:
        """Close the listener and all connections."""
        self._call(self._stop())

    def close(self) -> None:
        """End the thread."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add_job(self, **values: Any) -> str:
        """Add a row, with defaults for the columns that are not given. Returns its uid."""
        row = dict.fromkeys(COLUMNS) | {
            "namespace": "default",
            "kind": "PyTorchJob",
            "state": "Running",
            "running": 1,
            "replicas": 1,
            "restarts": 0,
            "message": "",
            "created": time.time() - 300,
            "started": time.time() - 290,
            "live": True,
        }
        row |= values
        uid = str(row["uid"])
        self.jobs[uid] = row
        return uid

    def send(self, frame: dict[str, Any], topic: str = "") -> None:
        """Send a frame to all pages that have subscribed to the topic; "" for all pages."""
        self._call(self._send(frame, topic))

    def send_rows(self, *uids: str) -> None:
        """Send the rows of jobs that have changed."""
        rows = [list(self.jobs[uid].values()) for uid in uids]
        self.send({"type": "jobs", "reset": False, "columns": COLUMNS, "rows": rows, "gone": [], "more": False}, "jobs")

    # The server.

    def _call(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer, access_log=None))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        for socket in list(self._sockets):
            await socket.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        response = await self._route(request)
        if not response.prepared:
            response.headers.update(response_headers(request.headers["Host"]))
        return response

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        path, assets = request.path.removeprefix("/ui/"), load_assets()
        if path == "":
            return web.Response(body=assets.page, content_type="text/html", charset="utf-8")
        if path.startswith("static/"):
            asset = assets.files[path.split("/", 2)[2]]
            return web.Response(body=asset.body, headers={"Content-Type": asset.content_type})
        if path == "v1/session":
            is_valid = (await request.json())["token"] == TOKEN
            return web.json_response(
                {"session": SESSION} if is_valid else {"error": "no"}, status=200 if is_valid else 401
            )
        if path == "v1/live":
            return await self._live(request)
        if path.startswith("v1/download/"):
            return self._log(request, path.removeprefix("v1/download/").replace("~", "/"), download=True)
        if request.headers.get("Authorization") != f"Bearer {SESSION}":
            return web.json_response({"error": "this session is over"}, status=401)
        if path == "v1/tickets":
            return web.json_response({"ticket": (await request.json())["path"].replace("/", "~")})
        if path == "v1/compare":
            return self._comparison([uid for uid in request.query["jobs"].split(",") if uid])
        if path == "v1/forward":
            return web.json_response({"error": "8 are open already"}, status=503)
        if path == "v1/actions":
            self.actions.append(await request.json())
            status, text = self.action_answer
            return web.json_response({"message" if status == 200 else "error": text}, status=status)
        return self._resource(request, path.removeprefix("v1/"))

    def _comparison(self, uids: list[str]) -> web.StreamResponse:
        if text := refusal(len(uids)):
            return web.json_response({"error": text}, status=400)
        runs = [
            self.jobs[uid] | {"metrics": self._last_values(uid), "peakMemory": self.peaks.get(uid)}
            for uid in uids
            if uid in self.jobs
        ]
        unknown = [uid for uid in uids if uid not in self.jobs]
        return web.json_response({"runs": runs, "differences": self.differences, "unknown": unknown})

    def _last_values(self, uid: str) -> dict[str, float]:
        return {curve["name"]: curve["value"][-1] for curve in self.series.get(uid, {}).get("series", [])}

    def _resource(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        _, uid, *rest = path.split("/")
        if uid not in self.jobs:
            return web.json_response({"error": "no such job"}, status=404)
        if rest == ["yaml"]:
            return web.Response(text=self.manifests.get(uid, ""), content_type="text/yaml")
        if rest == ["series"]:
            key = f"{uid} {request.query.get('replicas', '')}".rstrip()
            answer = self.series.get(key) or {"names": [], "sources": {}, "series": [], "spread": []}
            names = request.query.get("names", "").split(",")
            chosen = [curve for curve in answer["series"] if names == [""] or curve["name"] in names]
            return web.json_response(answer | {"series": chosen})
        if rest == ["logs"]:
            return web.json_response(
                {"files": [self._file(name, data) for name, data in self.logs.get(uid, {}).items()]}
            )
        return self._log(request, path)

    @staticmethod
    def _file(name: str, data: bytes) -> dict[str, Any]:
        replica, attempt, container, run = name.split("/")
        numbers = {"attempt": int(attempt.split("-")[1]), "run": int(run), "size": len(data)}
        return {"file": name, "replica": replica, "container": container} | numbers

    def _log(self, request: web.BaseRequest, path: str, download: bool = False) -> web.StreamResponse:
        _, uid, _, file = path.split("/", 3)
        data = self.logs[uid][file]
        if download:
            return web.Response(body=data, headers={"Content-Disposition": 'attachment; filename="whole.log"'})
        offset, limit = int(request.query["offset"]), int(request.query["limit"])
        start = max(0, len(data) + offset) if offset < 0 else min(offset, len(data))
        part = data[start : start + limit]
        headers = {"X-Log-Offset": start, "X-Log-Next": start + len(part), "X-Log-Size": len(data)}
        return web.Response(body=part, headers={name: str(value) for name, value in headers.items()})

    async def _live(self, request: web.BaseRequest) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("v1.trainyard.dev",))
        await socket.prepare(request)
        self._sockets[socket] = []
        hello = {"type": "hello", "version": "0.1.0", "now": time.time()} | self.hello
        await socket.send_str(json.dumps(hello))
        pinging = asyncio.ensure_future(self._ping(socket))
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    await self._subscribe(socket, json.loads(message.data)["subscribe"])
        finally:
            pinging.cancel()
            del self._sockets[socket]
        return socket

    @staticmethod
    async def _ping(socket: web.WebSocketResponse) -> None:
        while not socket.closed:
            await socket.send_str(json.dumps({"type": "ping", "now": time.time()}))
            await asyncio.sleep(5)

    async def _subscribe(self, socket: web.WebSocketResponse, topics: list[str]) -> None:
        added = [topic for topic in topics if topic not in self._sockets[socket]]
        self._sockets[socket] = topics
        for topic in added:
            for frame in self._first_frames(topic):
                await socket.send_str(json.dumps(frame))

    def _first_frames(self, topic: str) -> list[dict[str, Any]]:
        name, _, rest = topic.partition(":")
        uid = rest.partition(":")[0]
        if name == "jobs":
            rows = [list(row.values()) for row in self.jobs.values()]
            pieces = [rows[start : start + ROWS_PER_FRAME] for start in range(0, len(rows), ROWS_PER_FRAME)] or [[]]
            return [
                {
                    "type": "jobs",
                    "reset": piece is pieces[0],
                    "columns": COLUMNS,
                    "rows": piece,
                    "gone": [],
                    "more": piece is not pieces[-1],
                }
                for piece in pieces
            ]
        if name == "progress":
            return [progress_frame(list(self.progress.values()))]
        if name == "job":
            return self.job_frames.get(uid) or [{"type": "gone", "uid": uid}]
        return self.log_frames.get(uid, [])

    async def _send(self, frame: dict[str, Any], topic: str) -> None:
        text = json.dumps(frame)
        for socket, topics in list(self._sockets.items()):
            if not topic or topic in topics:
                await socket.send_str(text)

    def repeat(self, make: Callable[[int], tuple[dict[str, Any], str]], per_second: float) -> Callable[[], None]:
        """Send a frame that many times a second. Returns what ends that."""

        async def send_all() -> None:
            number = 0
            while True:
                await self._send(*make(number))
                number += 1
                await asyncio.sleep(1 / per_second)

        task = self._call(_started(send_all()))

        def stop() -> None:
            self._loop.call_soon_threadsafe(task.cancel)

        return stop


def progress_frame(rows: list[list[Any]]) -> dict[str, Any]:
    return {"type": "progress", "columns": PROGRESS_COLUMNS, "rows": rows}


async def _started(coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.ensure_future(coroutine)
