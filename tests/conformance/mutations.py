"""Mutations of the embedded server: each disables one behaviour, so that a check can be proven able to fail.

    ignores("limit")                       the server ignores that query parameter
    drops("metadata.finalizers")           the server drops that field from a request body
    without("details.causes")              responses (and watch events) lack that field
    answers(409, 201)                      responses with the first status code get the second
    sets("reason", "Unknown")              responses have that value in the field
    swaps(b"ADDED", b"MODIFIED")           the second bytes replace the first in responses
    without_header("Warning")              responses lack that header
    ignores_header("Accept")               the server ignores that request header
    handles_as("POST", "PUT")              a request with the first method is handled as one with the second
    replaced("registry.metadata:generate_name", f)
                                           an attribute of a server module ("Class.method" for a method) is replaced

`|` combines mutations.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from trainyard.objects import Json, decode, encode
from trainyard.server.model.requests import Request
from trainyard.server.verbs import Verbs

Headers = dict[str, str]
ResponseChange = Callable[[int, Headers, bytes], tuple[int, Headers, bytes]]


@dataclass(frozen=True)
class Mutation:
    """A change of the server's behaviour. `description` completes the sentence "a server that ..."."""

    description: str
    change_request: Callable[[Request], Request] | None = None
    change_response: ResponseChange | None = None
    change_request_headers: Callable[[Headers], Headers] | None = None
    replaced: tuple[tuple[str, Any], ...] = ()
    combined: tuple[Mutation, ...] = field(default=())

    def __or__(self, other: Mutation) -> Mutation:
        return Mutation(f"{self.description}; {other.description}", combined=(self, other))

    def parts(self) -> list[Mutation]:
        return [part for mutation in self.combined for part in mutation.parts()] or [self]

    def mutated_response(self, code: int, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        for part in self.parts():
            if part.change_response is not None:
                code, headers, body = part.change_response(code, headers, body)
        return code, headers, body

    def mutated_request_headers(self, headers: Headers) -> Headers:
        for part in self.parts():
            if part.change_request_headers is not None:
                headers = part.change_request_headers(headers)
        return headers

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within this context the embedded servers of this process are mutated."""
        with ExitStack() as stack:
            for part in self.parts():
                for path, replacement in part.replaced:
                    owner, name = _owner(path)
                    stack.enter_context(patch.object(owner, name, replacement))
                if part.change_request is not None:
                    stack.enter_context(patch.object(Verbs, "answer", _changed(Verbs.answer, part.change_request)))
            yield


def _changed(answer: Any, change: Callable[[Request], Request]) -> Any:
    return lambda verbs, request: answer(verbs, change(request))


def _owner(path: str) -> tuple[Any, str]:
    """The module or class that "module:Class.attribute" names, and the name of the attribute."""
    module, _, attributes = path.partition(":")
    package = "trainyard" if module.startswith(("schema.", "api_types.")) else "trainyard.server"
    owner: Any = importlib.import_module(f"{package}.{module}")
    *classes, name = attributes.split(".")
    for step in classes:
        owner = getattr(owner, step)
    return owner, name


def original(path: str) -> Any:
    """The unmutated attribute, for a replacement that wraps it."""
    owner, name = _owner(path)
    return getattr(owner, name)


def replaced(path: str, replacement: Any, description: str = "") -> Mutation:
    attribute = path.replace(":", ".")
    return Mutation(description or f"has another `{attribute}`", replaced=((path, replacement),))


def ignores(*names: str) -> Mutation:
    def change(request: Request) -> Request:
        return request._replace(
            query={name: value for name, value in request.query.items() if name not in names},
            query_string="&".join(
                part for part in request.query_string.split("&") if part.partition("=")[0] not in names
            ),
        )

    return Mutation(f"ignores the parameter {', '.join(names)}", change_request=change)


def handles_as(method: str, other: str) -> Mutation:
    def change(request: Request) -> Request:
        return request._replace(method=other) if request.method == method else request

    return Mutation(f"handles {method} as {other}", change_request=change)


def drops(*paths: str) -> Mutation:
    def change(request: Request) -> Request:
        return request._replace(body=_without_fields(request.body, paths)) if request.body else request

    return Mutation(f"drops {', '.join(paths)} of a request", change_request=change)


def without(*paths: str) -> Mutation:
    return Mutation(
        f"omits {', '.join(paths)}",
        change_response=lambda code, headers, body: (code, headers, _without_fields(body, paths)),
    )


def sets(path: str, value: Any) -> Mutation:
    def change(code: int, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        obj = _json_object(body)
        for holder, name in _locations(obj, path.split(".")):
            holder[name] = value
        return code, headers, body if obj is None else encode(obj)

    return Mutation(f"returns {path}: {value}", change_response=change)


def answers(code: int, instead: int) -> Mutation:
    return Mutation(
        f"answers {instead} instead of {code}",
        change_response=lambda actual, headers, body: (instead if actual == code else actual, headers, body),
    )


def swaps(old: bytes, new: bytes) -> Mutation:
    description = f"sends `{new.decode()}` instead of `{old.decode()}`" if new else f"omits `{old.decode()}`"
    return Mutation(description, change_response=lambda code, headers, body: (code, headers, body.replace(old, new)))


def without_header(*names: str) -> Mutation:
    removed = {name.lower() for name in names}

    def change(code: int, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        return code, {name: value for name, value in headers.items() if name.lower() not in removed}, body

    return Mutation(f"omits the header {', '.join(names)}", change_response=change)


def ignores_header(*names: str) -> Mutation:
    removed = {name.lower() for name in names}
    return Mutation(
        f"ignores the header {', '.join(names)}",
        change_request_headers=lambda headers: {
            name: value for name, value in headers.items() if name.lower() not in removed
        },
    )


def _json_object(body: bytes) -> Json | None:
    try:
        obj = decode(body)
    except ValueError:
        return None
    return obj if isinstance(obj, dict) else None


def _without_fields(body: bytes, paths: tuple[str, ...]) -> bytes:
    obj = _json_object(body)
    if obj is None:
        return body
    for path in paths:
        for holder, name in _locations(obj, path.split(".")):
            holder.pop(name, None)
    return encode(obj)


def _locations(obj: Any, steps: list[str]) -> list[tuple[Json, str]]:
    """The fields at that path, as (holder, name): in the object, in a list's items, in a watch event's object."""
    if not isinstance(obj, dict):
        return []
    items = obj.get("items")
    candidates = [obj, *(items if isinstance(items, list) else ()), obj.get("object")]
    return [location for candidate in candidates for location in _location(candidate, steps)]


def _location(obj: Any, steps: list[str]) -> list[tuple[Json, str]]:
    *parents, name = steps
    for step in parents:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return [(obj, name)] if isinstance(obj, dict) else []
