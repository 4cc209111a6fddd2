"""Waiting for objects of an API server, by a watch: every state of them is seen, also one that lasts for a moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from tests.support.waiting import PATIENCE, until_async
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json, decode, name_of, uid_of


async def until_objects(
    api: ApiClient,
    gvk: GVK,
    namespace: str,
    accept: Callable[[list[Json]], object],
    awaited: str,
    *,
    labels: str = "",
    fields: str = "",
    context: Callable[[], object] | None = None,
    seconds: float = PATIENCE,
) -> list[Json]:
    """The selected objects as soon as `accept` is true of them. Fails like `until_async`."""
    async with aclosing(_states(api, gvk, namespace, labels, fields)) as states:
        return await until_async(
            lambda: anext(states), awaited, accept=accept, context=context, seconds=seconds, pause=0
        )


async def until_object(
    api: ApiClient,
    gvk: GVK,
    namespace: str,
    name: str,
    accept: Callable[[Json], object],
    awaited: str,
    *,
    context: Callable[[], object] | None = None,
    seconds: float = PATIENCE,
) -> Json:
    """The object of this name as soon as it exists and `accept` is true of it."""
    objects = await until_objects(
        api,
        gvk,
        namespace,
        lambda objects: any(map(accept, objects)),
        awaited,
        fields=f"metadata.name={name}",
        context=context,
        seconds=seconds,
    )
    return objects[0]


async def until_gone(
    api: ApiClient,
    gvk: GVK,
    namespace: str,
    name: str,
    *,
    uid: str = "",
    context: Callable[[], object] | None = None,
    seconds: float = PATIENCE,
) -> None:
    """Wait until there is no object of this name; with a uid, until it is another one or none."""
    await until_objects(
        api,
        gvk,
        namespace,
        lambda objects: not any(uid in ("", uid_of(obj)) for obj in objects),
        f"{gvk.kind} {name} {uid} is gone",
        fields=f"metadata.name={name}",
        context=context,
        seconds=seconds,
    )


async def _states(
    api: ApiClient, gvk: GVK, namespace: str, labels: str, fields: str
) -> AsyncGenerator[list[Json], None]:
    """The objects by name, and again after each change. A watch that ends is opened again, after a list."""
    while True:
        listed = await api.list(gvk, namespace, labels, fields)
        objects = {_key(obj): obj for obj in listed["items"]}
        yield [objects[key] for key in sorted(objects)]
        async with aclosing(api.watch(gvk, namespace, listed["metadata"]["resourceVersion"], labels, fields)) as lines:
            async for line in lines:
                event = decode(line)
                if event["type"] in ("ADDED", "MODIFIED"):
                    objects[_key(event["object"])] = event["object"]
                elif event["type"] == "DELETED":
                    objects.pop(_key(event["object"]), None)
                else:
                    continue
                yield [objects[key] for key in sorted(objects)]


def _key(obj: Json) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), name_of(obj)
