"""Jobs by the names that a person uses: `NAME` or `KIND/NAME`. And everything that belongs to one.

Rules:
- A name that several kinds have is never guessed: the candidates are listed.
- A name that nobody has is answered with names that are near.
- Nothing here knows one kind from another: all is in `kinds.ALL`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from difflib import get_close_matches

import msgspec

from trainyard import kinds
from trainyard.app.background import BackgroundError
from trainyard.cli.codes import BAD, CANNOT
from trainyard.cli.speaking import Here, NoJob, Said
from trainyard.client import ApiError, Forbidden, NotFound
from trainyard.core import Kind
from trainyard.objects import GVK, Json, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import EVENT, POD


class Found(msgspec.Struct, frozen=True):
    """One job, and its kind (one for each group that it is served under)."""

    kind: Kind
    job: Json

    @property
    def gvk(self) -> GVK:
        return self.kind.gvk

    @property
    def namespace(self) -> str:
        return namespace_of(self.job)

    @property
    def name(self) -> str:
        return name_of(self.job)

    @property
    def word(self) -> str:
        """As a person may write it: tfjob/a."""
        return f"{self.kind.singular}/{self.name}"


class Family(msgspec.Struct, frozen=True):
    """What belongs to a job, as the API has it."""

    pods: list[Json] = msgspec.field(default_factory=list)
    children: list[Json] = msgspec.field(default_factory=list)  # all but pods
    events: list[Json] = msgspec.field(default_factory=list)  # about the job, its children and its pods


def kind_named(word: str) -> list[Kind]:
    """The kinds that are called so: TfJob, tfjob, tfjobs, tfjobs.tensorflow.org, a short name."""
    bare, _, group = word.lower().partition(".")
    return [
        kind
        for kind in kinds.ALL
        if bare in (kind.gvk.kind.lower(), kind.singular, kind.gvk.plural, *kind.short_names)
        and (not group or kind.gvk.group == group)
    ]


def split(text: str) -> tuple[tuple[Kind, ...], str]:
    """`KIND/NAME` or `NAME`: the kinds it may be of, and the name."""
    word, slash, name = text.partition("/")
    if not slash:
        return kinds.ALL, text
    named = kind_named(word)
    if not named or not name:
        raise Said(f"{text}: {word!r} is not a kind of job; write one of: {known()}", BAD)
    return tuple(named), name


def known() -> str:
    return ", ".join(dict.fromkeys(kind.singular for kind in kinds.ALL))


async def find(here: Here, text: str) -> Found:
    """The job of that name. Raises Said when there is none, or more than one."""
    which, name = split(text)
    found = await _named(here, which, name)
    if len(found) > 1:
        words = [one.word for one in found]
        if len(set(words)) < len(words):  # the same kind in two groups
            words = [f"{one.gvk.plural}.{one.gvk.group}/{one.name}" for one in found]
        raise Said(f"{name} is the name of {len(found)} jobs, write which one: {', '.join(words)}", BAD)
    if not found:
        raise NoJob(f"{await _nobody(here, which, name)}{_in_history(here, text)}")
    return found[0]


def _in_history(here: Here, text: str) -> str:
    """Where a job that the cluster does not have (any more) can be seen."""
    from trainyard.app import history

    try:
        found = history.find_records(history.history_folder(), text, here.namespace)
    except BackgroundError:
        return ""
    return f"; one of that name is in the history: trainyard history {text}" if found else ""


async def _named(here: Here, which: Iterable[Kind], name: str) -> list[Found]:
    which = tuple(which)
    jobs = await asyncio.gather(*(_get(here, kind.gvk, name) for kind in which))
    return [Found(kind, job) for kind, job in zip(which, jobs, strict=True) if job is not None]


async def _get(here: Here, gvk: GVK, name: str) -> Json | None:
    try:
        return _typed(await here.api.get(gvk, here.namespace, name), gvk)
    except NotFound:
        return None


async def _nobody(here: Here, which: Iterable[Kind], name: str) -> str:
    """What to say of a name that no job has."""
    there = await listed(here, which)
    names = [one.name for one in there]
    near = get_close_matches(name, names, 3, 0.5)
    text = f"there is no job {name} in namespace {here.namespace}"
    if near:
        return f"{text}; near it are: {', '.join(one.word for one in there if one.name in near)}"
    try:
        elsewhere = [one for one in await listed(Here(here.api, "", here.access), which) if one.name == name]
    except ApiError:
        elsewhere = []
    if elsewhere:
        return (
            f"{text}, but there is {elsewhere[0].word} in {elsewhere[0].namespace}: write -n {elsewhere[0].namespace}"
        )
    if names:
        more = ", ..." if len(names) > 5 else ""
        return f"{text}; there are: {', '.join(sorted(one.word for one in there)[:5])}{more}"
    return f"{text}; there are none at all"


async def listed(here: Here, which: Iterable[Kind] = kinds.ALL) -> list[Found]:
    """All jobs of these kinds, in the namespace (in all of them where it is ""), oldest first."""
    which = tuple(which)
    pages = await asyncio.gather(*(_list(here, kind.gvk) for kind in which))
    if which and all(page is None for page in pages):
        names = ", ".join(dict.fromkeys(kind.gvk.kind for kind in which))
        text = f"this cluster does not know {names}: Trainyard is not installed there"
        raise Said(f"{text} (kubeconfig: {here.access.source})", CANNOT)
    found = [Found(kind, job) for kind, page in zip(which, pages, strict=True) for job in page or ()]
    return sorted(found, key=lambda one: (one.namespace, str(one.job["metadata"].get("creationTimestamp")), one.name))


async def _list(here: Here, gvk: GVK, labels: str = "") -> list[Json] | None:
    """None: the resource is not served."""
    try:
        page = await here.api.list(gvk, here.namespace, labels)
    except NotFound:
        return None
    return [_typed(item, gvk) for item in page.get("items") or []]


def _typed(obj: Json, gvk: GVK) -> Json:
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, **obj}


async def pods_of(here: Here, job: Json) -> list[Json]:
    within = Here(here.api, namespace_of(job), here.access)
    return await _list(within, POD, f"{OWNER}={uid_of(job)}") or []


async def family(here: Here, found: Found) -> Family:
    """Pods, children and events of a job. What we may not see is left out."""
    within = Here(here.api, found.namespace, here.access)
    places = [gvk for gvk in found.kind.child_resources if gvk != POD]
    labels = f"{OWNER}={uid_of(found.job)}"
    pods, said, *rest = await asyncio.gather(
        _seen(within, POD, labels), _seen(within, EVENT, ""), *(_seen(within, gvk, labels) for gvk in places)
    )
    children = [child for page in rest for child in page]
    about = {uid_of(obj) for obj in (found.job, *pods, *children)}
    names = {(obj["kind"], name_of(obj)) for obj in (found.job, *pods, *children)}
    events = [event for event in said if _is_about(event, about, names)]
    return Family(pods, children, sorted(events, key=moment))


async def _seen(here: Here, gvk: GVK, labels: str) -> list[Json]:
    try:
        return await _list(here, gvk, labels) or []
    except Forbidden:
        return []


def _is_about(event: Json, uids: set[str], names: set[tuple[str, str]]) -> bool:
    """By uid; where an event names none, by kind and name."""
    about = event.get("involvedObject") or {}
    uid = about.get("uid")
    return uid in uids if uid else (about.get("kind"), about.get("name")) in names


def moment(event: Json) -> str:
    """When it was said last. RFC 3339 in UTC sorts as text."""
    series = event.get("series") or {}
    found = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return str(found or event["metadata"].get("creationTimestamp") or "")
