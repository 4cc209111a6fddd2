"""Mutations of the embedded server: one behaviour switched off, so that a check can be shown able to fail.

    ignores("limit")                    the server does not know that query parameter drops("metadata.finalizers")
    the server does not see that field of a request's body without("details.causes")           the answers lack that
    field (each line of a watch, too) answers(409, 201)                   the answers have another code sets("reason",
    "Unknown")           the answers have another value there swaps(b"ADDED", b"MODIFIED")        the answers have other
    bytes unsent("Warning")                   the answers lack that header replaced("registry.metadata:generate_name",
    f)   a function (or method, "Class.method") of a module of the server is another one unheard("Accept")
    the server does not see that header hears("POST", "PUT")                a request with the first method is taken for
    one with the second

They are joined by `|`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from trainyard.objects import Json, decode, encode
from trainyard.server.http.requests import Request
from trainyard.server.registry.verbs import Verbs

Headers = dict[str, str]
Change = Callable[[int, Headers, bytes], tuple[int, Headers, bytes]]


@dataclass(frozen=True)
class Break:
    """`words` say what is wrong with the server. The rest is how that is brought about."""

    words: str
    request: Callable[[Request], Request] | None = None
    answer: Change | None = None
    sent: Callable[[Headers], Headers] | None = None
    replaced: tuple[tuple[str, Any], ...] = ()
    also: tuple[Break, ...] = field(default=())

    def __or__(self, other: Break) -> Break:
        return Break(f"{self.words}; {other.words}", also=(self, other))

    def parts(self) -> list[Break]:
        return [part for one in self.also for part in one.parts()] or [self]

    def altered(self, code: int, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        for part in self.parts():
            if part.answer is not None:
                code, headers, body = part.answer(code, headers, body)
        return code, headers, body

    def heard(self, headers: Headers) -> Headers:
        for part in self.parts():
            if part.sent is not None:
                headers = part.sent(headers)
        return headers

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The embedded servers of this process are broken meanwhile."""
        with ExitStack() as stack:
            for part in self.parts():
                for where, what in part.replaced:
                    owner, name = _owner(where)
                    stack.enter_context(patch.object(owner, name, what))
                if part.request is not None:
                    stack.enter_context(patch.object(Verbs, "answer", _misheard(Verbs.answer, part.request)))
            yield


def _misheard(answer: Any, change: Callable[[Request], Request]) -> Any:
    return lambda verbs, request: answer(verbs, change(request))


def _owner(where: str) -> tuple[Any, str]:
    module, _, path = where.partition(":")
    room = "trainyard" if module.startswith("schema.") else "trainyard.server"
    owner: Any = importlib.import_module(f"{room}.{module}")
    *steps, name = path.split(".")
    for step in steps:
        owner = getattr(owner, step)
    return owner, name


def original(where: str) -> Any:
    """What is there, for a replacement that only adds to it."""
    owner, name = _owner(where)
    return getattr(owner, name)


def replaced(where: str, what: Any, words: str = "") -> Break:
    broken = where.replace(":", ".")
    return Break(words or f"has another `{broken}`", replaced=((where, what),))


def ignores(*names: str) -> Break:
    def change(request: Request) -> Request:
        return request._replace(
            query={name: value for name, value in request.query.items() if name not in names},
            query_string="&".join(
                part for part in request.query_string.split("&") if part.partition("=")[0] not in names
            ),
        )

    return Break(f"ignores {', '.join(names)}", request=change)


def hears(method: str, instead: str) -> Break:
    def change(request: Request) -> Request:
        return request._replace(method=instead) if request.method == method else request

    return Break(f"takes {method} for {instead}", request=change)


def drops(*paths: str) -> Break:
    def change(request: Request) -> Request:
        return request._replace(body=_pruned(request.body, paths)) if request.body else request

    return Break(f"does not see {', '.join(paths)}", request=change)


def without(*paths: str) -> Break:
    return Break(f"does not say {', '.join(paths)}", answer=lambda code, head, body: (code, head, _pruned(body, paths)))


def sets(path: str, value: Any) -> Break:
    def change(code: int, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        obj = _json(body)
        for holder, name in _places(obj, path.split(".")):
            holder[name] = value
        return code, headers, body if obj is None else encode(obj)

    return Break(f"says {path}: {value}", answer=change)


def answers(code: int, instead: int) -> Break:
    return Break(
        f"answers {instead} for {code}", answer=lambda got, head, body: (instead if got == code else got, head, body)
    )


def swaps(old: bytes, new: bytes) -> Break:
    words = f"says `{new.decode()}` for `{old.decode()}`"
    return Break(words, answer=lambda code, head, body: (code, head, body.replace(old, new)))


def unsent(*names: str) -> Break:
    gone = {name.lower() for name in names}

    def change(code: int, headers: Headers, body: bytes) -> tuple[int, Headers, bytes]:
        return code, {name: value for name, value in headers.items() if name.lower() not in gone}, body

    return Break(f"sends no {', '.join(names)}", answer=change)


def unheard(*names: str) -> Break:
    gone = {name.lower() for name in names}
    return Break(
        f"does not hear {', '.join(names)}",
        sent=lambda headers: {name: value for name, value in headers.items() if name.lower() not in gone},
    )


def _json(body: bytes) -> Json | None:
    try:
        obj = decode(body)
    except ValueError:
        return None
    return obj if isinstance(obj, dict) else None


def _pruned(body: bytes, paths: tuple[str, ...]) -> bytes:
    obj = _json(body)
    if obj is None:
        return body
    for path in paths:
        for holder, name in _places(obj, path.split(".")):
            holder.pop(name, None)
    return encode(obj)


def _places(obj: Any, steps: list[str]) -> list[tuple[Json, str]]:
    """Where that path ends: in the object, in its items, or in the object of a watch line."""
    if not isinstance(obj, dict):
        return []
    found = _held(obj, steps)
    for one in [*_items(obj), obj.get("object")]:
        found += _held(one, steps)
    return found


def _items(obj: Json) -> list[Any]:
    items = obj.get("items")
    return items if isinstance(items, list) else []


def _held(obj: Any, steps: list[str]) -> list[tuple[Json, str]]:
    *way, name = steps
    for step in way:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return [(obj, name)] if isinstance(obj, dict) else []
