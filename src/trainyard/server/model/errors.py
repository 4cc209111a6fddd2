"""Error responses: Status objects with the codes, reasons and messages of kube-apiserver."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from trainyard.objects import Json, Problem, decode, encode
from trainyard.schema.checks import WRONG_TYPE_PATTERN

_CAUSES = (
    ("Required value", "FieldValueRequired"),
    ("Unsupported value", "FieldValueNotSupported"),
    ("Duplicate value", "FieldValueDuplicate"),
    ("Too long", "FieldValueTooLong"),
    ("Too many", "FieldValueTooMany"),
    ("Forbidden", "FieldValueForbidden"),
    ("Not found", "FieldValueNotFound"),
)
MAX_MESSAGE_LENGTH = 16_000  # characters of a message


class StatusError(Exception):
    """A request that fails with a Status object."""

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, *, metadata: Json | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message[:MAX_MESSAGE_LENGTH], details
        self.metadata: Json = metadata or {}

    def status(self) -> Json:
        """The error as a Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": self.details} if self.details is not None else {}),
            "code": self.code,
        }

    def body(self) -> bytes:
        """The Status as JSON."""
        return encode(self.status())


class DecodingError(StatusError):
    """400: the request body cannot be decoded as an object of the resource. No other check has run yet."""

    def __init__(self, message: str) -> None:
        super().__init__(400, "BadRequest", message)


_KUBELET_REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 500: "InternalError"}


def kubelet_error(code: int, text: str) -> StatusError:
    """The error response of a kubelet as a StatusError: the message of its Status, or its body as the message."""
    try:
        status = decode(text)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status" and isinstance(status.get("message"), str):
        text = status["message"]
    text = printable(text.strip()) or f"the kubelet of the pod's node answered {code}"
    if code < 400:
        return StatusError(500, "InternalError", f"error dialing backend: {text}")
    return StatusError(code, _KUBELET_REASONS.get(code, ""), text)


def patch_invalid(text: str) -> StatusError:
    """422: the object after the patch cannot be decoded."""
    problem = Problem("patch", f"Invalid value: the object after the patch: {text}")
    cause = {"reason": "FieldValueInvalid", "message": problem.text, "field": problem.path}
    return StatusError(422, "Invalid", f' "" is invalid: {problem}', {"causes": [cause]})


def success(details: Json, code: int = 0) -> Json:
    """A Status of success, as a DELETE returns it; `code` is left out when 0."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    return {**status, "code": code} if code else status


def qualified(plural: str, group: str) -> str:
    """The resource with its group: jobs.batch, pods."""
    return f"{plural}.{group}" if group else plural


def _details(plural: str, group: str, name: str, **details: Any) -> Json:
    name_detail = {"name": name} if name else {}
    return {**name_detail, **({"group": group} if group else {}), "kind": plural, **details}


def not_found(plural: str, group: str, name: str) -> StatusError:
    """404 for an object."""
    text = f'{qualified(plural, group)} "{name}" not found'
    return StatusError(404, "NotFound", text, _details(plural, group, name))


def path_not_found() -> StatusError:
    """404 for a path that this server does not serve."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(plural: str, group: str, name: str) -> StatusError:
    """409 AlreadyExists for a create."""
    text = f'{qualified(plural, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", text, _details(plural, group, name))


def conflict(plural: str, group: str, name: str, why: str) -> StatusError:
    """409 Conflict for an update; `why` names what has changed."""
    text = f'Operation cannot be fulfilled on {qualified(plural, group)} "{name}": {why}'
    return StatusError(409, "Conflict", text, _details(plural, group, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def forbidden(plural: str, group: str, name: str, why: str, **more: Any) -> StatusError:
    """403 for an object; `more`: further fields of the details."""
    quoted_name = f' "{name}"' if name else ""
    text = f"{qualified(plural, group)}{quoted_name} is forbidden: {why}"
    return StatusError(403, "Forbidden", text, _details(plural, group, name, **more))


def bad_request(text: str) -> StatusError:
    """400 with this message."""
    return StatusError(400, "BadRequest", text)


def namespace_mismatch() -> StatusError:
    """400 for a body whose namespace is not that of the path."""
    return bad_request("the namespace of the provided object does not match the namespace sent on the request")


def method_not_allowed() -> StatusError:
    """405 for the path."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def not_supported(verb: str, plural: str, group: str, text: str = "") -> StatusError:
    """405: the resource does not support that verb, or not now (`text`)."""
    text = text or f'{verb} is not supported on resources of kind "{qualified(plural, group)}"'
    return StatusError(405, "MethodNotAllowed", text, _details(plural, group, ""))


def unsupported_media_type(accepted: Sequence[str], got: str) -> StatusError:
    """415; `accepted`: the media types that the server reads."""
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, "UnsupportedMediaType", text)


def options_invalid(kind: str, problems: Sequence[Problem]) -> StatusError:
    """422 for invalid options of a request (ListOptions, DeleteOptions)."""
    return invalid(kind, "meta.k8s.io", "", problems)


def expired(text: str) -> StatusError:
    """410: the client must list again."""
    return StatusError(410, "Expired", text)


def too_old(requested: int, floor: int) -> StatusError:
    """410 for a resourceVersion below the oldest one that is kept."""
    return expired(f"too old resource version: {requested} ({floor})")


def too_new(requested: int, current: int, retry: bool = True) -> StatusError:
    """504 for a resourceVersion that the log has not reached. `retry`: the client may retry after a second."""
    text = f"Timeout: Too large resource version: {requested}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(504, "Timeout", text, {"causes": [cause], **({"retryAfterSeconds": 1} if retry else {})})


def invalid(kind: str, group: str, name: str, problems: Sequence[Problem]) -> StatusError:
    """422 with one cause per problem: its field is the problem's path, its reason is derived from the text."""
    causes = []
    for problem in problems:
        reason = next((word for start, word in _CAUSES if problem.text.startswith(start)), _invalid_reason(problem))
        causes.append({"reason": reason, "message": problem.text, "field": problem.path or "<nil>"})
    texts = [str(problem) for problem in dict.fromkeys(problems)]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    text = f'{qualified(kind, group)} "{name}" is invalid: {listed}'
    return StatusError(422, "Invalid", text, _details(kind, group, name, causes=causes))


def _invalid_reason(problem: Problem) -> str:
    return "FieldValueTypeInvalid" if WRONG_TYPE_PATTERN.match(problem.text) else "FieldValueInvalid"


def printable(text: str) -> str:
    """Client input made safe for a message: control characters and lone surrogates become `?`."""
    return re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", "?", text)
