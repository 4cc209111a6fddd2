"""What the verbs answer, once nothing of it can be taken back: the log has written what they wrote, or have seen."""

from __future__ import annotations

from trainyard.server.errors import Refused
from trainyard.server.log import NotWritten
from trainyard.server.requests import Answer, Request
from trainyard.server.verbs import Verbs


async def settled(verbs: Verbs, request: Request) -> Answer:
    """The answer to one request. Raises Refused; 500 where the log could not write what the request changes."""
    log = verbs.writes.log
    while True:
        try:
            try:
                return verbs.answer(request)
            finally:
                await log.durable(log.revision)
        except NotWritten as why:
            if request.method not in ("GET", "HEAD"):
                raise Refused(500, "InternalError", str(why)) from None
