"""The routes with data of one job: its page, its YAML, its logs, its curves, its TensorBoard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from trainyard.app.job_files import in_thread
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.objects.numbers import json_numbers
from trainyard.objects.structs import replace
from trainyard.page import access
from trainyard.page.event_series import EventReader
from trainyard.page.job_pages import JobPages
from trainyard.page.log_ranges import MAX_RANGE, ListedLog, pod_files, read_range, recorded_files, whole_log
from trainyard.page.observation import Observation
from trainyard.page.options import ClaimFolders
from trainyard.page.responses import error_response, json_body, json_response
from trainyard.page.series import MAX_POINTS, NO_SERIES, SeriesAnswer, SeriesReader
from trainyard.page.sessions import Sessions
from trainyard.views.comparison import Comparison, differences, refusal

if TYPE_CHECKING:
    from trainyard.page.forward import Forwards


class DataRoutes:
    """The handlers, by the names that access.ROUTES gives them."""

    def __init__(
        self,
        api: ApiClient | None,
        observation: Observation | None,
        pages: JobPages,
        sessions: Sessions,
        claims: ClaimFolders,
        proxy_api: Callable[[], ApiClient] | None,
    ) -> None:
        self._api, self._observation, self._pages, self._sessions = api, observation, pages, sessions
        self._proxy_api = proxy_api
        self._forwards: Forwards | None = None
        self._series, self._events, self._series_lock = SeriesReader(), EventReader(claims), asyncio.Lock()

    async def job(self, request: web.BaseRequest, uid: str) -> web.StreamResponse:
        """The page of a job, with its log files."""
        async with self._looking():
            page = await self._pages.page(uid)
            if page is None:
                return _no_job()
            files = await self._files(uid)
            return json_response(msgspec.structs.asdict(page) | {"logs": files})

    async def yaml(self, request: web.BaseRequest, uid: str) -> web.StreamResponse:
        """The job as YAML."""
        async with self._looking():
            text = await self._pages.manifest(uid)
        return _no_job() if text is None else web.Response(text=text, content_type="text/yaml", charset="utf-8")

    async def log_files(self, request: web.BaseRequest, uid: str) -> web.StreamResponse:
        """The names and sizes of the job's logs."""
        async with self._looking():
            return json_response({"files": await self._files(uid)})

    async def log(self, request: web.BaseRequest, uid: str, file: str) -> web.StreamResponse:
        """Bytes of one log: `?offset=N&limit=M`, from the end if N is negative."""
        try:
            offset, limit = int(request.query.get("offset", "0")), int(request.query.get("limit", str(MAX_RANGE)))
        except ValueError:
            return error_response(400, "offset and limit are numbers of bytes")
        async with self._looking():
            record = await in_thread(self._pages.record, uid)
            part = await read_range(self._api, record, self._pods(uid), file, offset, limit)
        if part is None:
            return error_response(404, f"the job has no log {file}")
        headers = {
            "X-Log-Offset": str(part.offset),
            "X-Log-Next": str(part.next_offset),
            "X-Log-Size": str(part.size),
        }
        return web.Response(body=part.data, content_type="application/octet-stream", headers=headers)

    async def series(self, request: web.BaseRequest, uid: str) -> web.StreamResponse:
        """The curves of a job: `?names=a,b&replicas=worker-0&points=N`. None where there is no history."""
        names, replicas = (_list(request.query.get(key, "")) for key in ("names", "replicas"))
        try:
            points = int(request.query.get("points", str(MAX_POINTS)))
        except ValueError:  # no number, or one of more than 4,300 digits
            points = 0
        if not 1 <= points <= MAX_POINTS:
            return error_response(400, f"points is a number from 1 to {MAX_POINTS}")

        def read() -> SeriesAnswer:
            record = self._pages.record(uid)
            if record is None:
                return NO_SERIES
            events = self._events.read(uid, record)
            answer = self._series.read(record.logs, names, replicas, points, events)
            return replace(answer, corrupt=self._events.corrupt(uid))

        async with self._series_lock:
            return json_response(await in_thread(read))

    async def compare(self, request: web.BaseRequest) -> web.StreamResponse:
        """What differs between runs, and how they ended: `?jobs=UID,UID`."""
        uids = list(dict.fromkeys(_list(request.query.get("jobs", ""))))
        if refused := refusal(len(uids)):
            return error_response(400, refused)
        async with self._looking():
            known = {uid: compared for uid in uids if (compared := await self._pages.compared(uid))}

        def last_values(uid: str) -> dict[str, float]:
            record = self._pages.record(uid)
            return self._series.last_values(record.logs, self._events.read(uid, record)) if record else {}

        async with self._series_lock:
            metrics = await in_thread(lambda: {uid: last_values(uid) for uid in known})
        runs = [replace(run, metrics=json_numbers(metrics[uid])) for uid, (_, run) in known.items()]
        unknown = [uid for uid in uids if uid not in known]
        return json_response(Comparison(runs, differences([job for job, _ in known.values()]), unknown))

    async def forward(self, request: web.BaseRequest) -> web.StreamResponse:
        """A link to the TensorBoard of a job, at a port of its own."""
        body = await json_body(request)
        if self._api is None or self._observation is None:
            return error_response(404, "there is no cluster, and nothing runs in the history")
        if self._forwards is None:
            from trainyard.page.forward import Forwards  # nobody pays for it before the first press

            self._forwards = Forwards(self._proxy_api() if self._proxy_api else self._api, self._observation)
        async with self._looking():
            return json_response({"url": await self._forwards.open(str(body.get("job")))})

    async def close(self) -> None:
        """Close the forwards."""
        if self._forwards is not None:
            await self._forwards.close()

    async def ticket(self, request: web.BaseRequest) -> web.StreamResponse:
        """A ticket for one download."""
        body = await json_body(request)
        return json_response({"ticket": self._sessions.issue_ticket(str(body.get("path")))})

    async def download(self, request: web.BaseRequest, ticket: str) -> web.StreamResponse:
        """A whole log as an attachment."""
        path = self._sessions.take_ticket(ticket)
        prefix, _, rest = (path or "").partition("/")
        uid, _, file = rest.partition("/logs/")
        if path is None or prefix != "jobs" or not file:
            return error_response(404, "this link was used, or is older than half a minute: click it again")
        name = f"{file.replace('/', '-')}.log"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        headers |= access.response_headers(request.headers.get("Host", ""))
        async with self._looking():
            record = await in_thread(self._pages.record, uid)
            chunks = await whole_log(self._api, record, self._pods(uid), file)
        if chunks is None:
            return error_response(404, f"the job has no log {file}")
        response = web.StreamResponse(headers=headers)
        response.content_type = "application/octet-stream"
        await response.prepare(request)
        async for chunk in chunks:
            await response.write(chunk)
        return response

    @contextlib.asynccontextmanager
    async def _looking(self) -> AsyncIterator[None]:
        """Watch the cluster meanwhile, and wait until it is listed."""
        if self._observation is None:
            yield
            return
        async with self._observation.looking():
            yield

    def _pods(self, job_uid: str) -> list[Json]:
        return self._observation.pods(job_uid) if self._observation else []

    async def _files(self, job_uid: str) -> list[ListedLog]:
        record = await in_thread(self._pages.record, job_uid)
        return await in_thread(recorded_files, record) if record else pod_files(self._pods(job_uid))


def _list(text: str) -> list[str]:
    return [item for item in text.split(",") if item]


def _no_job() -> web.Response:
    return error_response(404, "there is no such job, neither in the cluster nor in the history of this machine")
