"""What can go wrong when the API server is asked something. One tree, and a caller catches the branch it can deal with.

    ApiError                    the server's answer was not 2xx; carries code, reason, message, details
    +-- Conflict        409     our copy was old, or a precondition (uid, resourceVersion) did not hold: look again
    +-- AlreadyExists   409     the name is taken: by ours from an earlier life, or by somebody else's object
    +-- NotFound        404     no such object, or no such resource (its CRD is missing)
    +-- Gone            410     the revision is too old: list again
    +-- Invalid         422     the object is wrong, trying again does not help
    +-- Forbidden       403     not allowed, a quota, or a namespace on its way out
    +-- Unavailable     429, 5xx, no answer at all, half an answer: the world's fault. The outcome of a write is unknown

Rules for this file:
- An error says what the server said; it never holds a token or a body that we sent.
- `Unavailable.retry_after` is what the server asked for (seconds), None when it asked for nothing. The client itself
  never retries: whoever retries honours it.
"""

from __future__ import annotations

from trainyard.objects import Json


class ApiError(Exception):
    """The API server said no."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Json = details or {}

    def __str__(self) -> str:
        return f"{self.message} ({self.code} {self.reason})" if self.code else f"{self.message} ({self.reason})"


class Conflict(ApiError):
    """Our copy was old, or a precondition did not hold."""


class AlreadyExists(ApiError):
    """The name is taken."""


class NotFound(ApiError):
    """There is no such object or resource."""


class Gone(ApiError):
    """The revision or the continue token is too old."""


class Invalid(ApiError):
    """The object is wrong."""


class Forbidden(ApiError):
    """Not allowed, or over a quota."""


class Unavailable(ApiError):
    """No answer, half an answer, or "not now"."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, reason, message, details)
        self.retry_after = retry_after


_BY_CODE: dict[int, type[ApiError]] = {403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone, 422: Invalid}


def error_for(
    code: int, reason: str, message: str, details: Json | None = None, retry_after: float | None = None
) -> ApiError:
    """The branch of the tree that an answer belongs to."""
    if code == 429 or code >= 500 or code == 408:
        return Unavailable(code, reason, message, details, retry_after)
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists(code, reason, message, details)
    return _BY_CODE.get(code, ApiError)(code, reason, message, details)
