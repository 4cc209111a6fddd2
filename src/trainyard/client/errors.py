"""The errors of a request to the API server. All are ApiErrors; a caller catches the subclasses that it can handle.

    ApiError                    the response was not 2xx; has code, reason, message, details
    +-- Conflict        409     the resourceVersion was stale, or the uid is another: read again
    +-- AlreadyExists   409     the name is taken, by an object of an earlier create or of another owner
    +-- NotFound        404     no such object, or no such resource (its CRD is missing)
    +-- Gone            410     the resourceVersion or continue token has expired: list again
    +-- Invalid         422     the object is invalid; a retry does not help
    +-- Forbidden       403     no permission, a quota is exceeded, or the namespace is being deleted
    +-- Unavailable     408, 429, 5xx, no response, or half a response. The outcome of a write is unknown

Rules for this file:
- An error has the reason and message of the server; it never holds a token or the body of a request.
- `Unavailable.retry_after` is the server's Retry-After (seconds), None without one. A caller that retries waits for it.
"""

from __future__ import annotations

from trainyard.objects import Json


class ApiError(Exception):
    """The response of the API server was not 2xx. `code` 0: there was no complete response."""

    def __init__(self, code: int, reason: str, message: str, details: Json | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Json = details or {}

    def __str__(self) -> str:
        return f"{self.message} ({self.code} {self.reason})" if self.code else f"{self.message} ({self.reason})"


class Conflict(ApiError):
    """The resourceVersion of the request was stale, or a precondition failed."""


class AlreadyExists(ApiError):
    """The name is taken."""


class NotFound(ApiError):
    """There is no such object or resource."""


class Gone(ApiError):
    """The resourceVersion or the continue token has expired."""


class Invalid(ApiError):
    """The object is invalid."""


class Forbidden(ApiError):
    """No permission, or a quota is exceeded."""


class Unavailable(ApiError):
    """No response, half a response, or a temporary failure (408, 429, 5xx). `retry_after` is in seconds."""

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
    """The error for a response with this status code and reason."""
    if code == 429 or code >= 500 or code == 408:
        return Unavailable(code, reason, message, details, retry_after)
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists(code, reason, message, details)
    return _BY_CODE.get(code, ApiError)(code, reason, message, details)
