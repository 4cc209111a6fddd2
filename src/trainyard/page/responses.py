"""Bodies of requests and responses: JSON, and errors with a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from trainyard.objects import Json, decode
from trainyard.page.access import LIMITS, MAX_BODY
from trainyard.server.http.bodies import read_body
from trainyard.server.model.errors import StatusError


class RequestRefused(Exception):
    """A response that is an error: its status code and a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def json_response(value: Any) -> web.Response:
    """A value that msgspec can encode."""
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def error_response(status: int, text: str) -> web.Response:
    """An error: {"error": text}."""
    return web.Response(body=msgspec.json.encode({"error": text}), status=status, content_type="application/json")


async def json_body(request: web.BaseRequest) -> Json:
    """The JSON object of a request. Another content type is refused: a form of a foreign page could send it."""
    if request.content_type != "application/json":
        raise RequestRefused(415, "send application/json")
    try:
        body = decode(await read_body(request, MAX_BODY, LIMITS.body_seconds))
    except StatusError as refused:
        raise RequestRefused(refused.code, refused.message) from None
    except ValueError:
        raise RequestRefused(400, "the body is not JSON") from None
    if not isinstance(body, dict):
        raise RequestRefused(400, "the body is not an object")
    return body
