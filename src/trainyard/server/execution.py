"""Executes a request and waits until the log has committed all entries that it wrote or read."""

from __future__ import annotations

from trainyard.server.model.errors import StatusError
from trainyard.server.model.requests import Answer, Request
from trainyard.server.storage.log import NotWritten
from trainyard.server.verbs import Verbs


async def execute(verbs: Verbs, request: Request) -> Answer:
    """The answer to one request. Raises StatusError; 500 when the log could not store the change. Reads are retried."""
    log = verbs.writes.log
    while True:
        try:
            try:
                return verbs.answer(request)
            finally:
                await log.wait_committed(log.revision)
        except NotWritten as error:
            if request.method not in ("GET", "HEAD"):
                raise StatusError(500, "InternalError", str(error)) from None
