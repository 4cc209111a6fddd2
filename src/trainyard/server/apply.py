"""Server-side apply: who sends a field owns it, and who no longer sends it gives it up.

    config + live object + owners -> merged object + owners        or a conflict, which names owner and field

Rules for this file:
- An object that nobody ever applied has no managedFields, so creates, status patches and updates pay nothing for this.
  The first apply gives everything that is there to the manager `before-first-apply`.
- From then on every create, update and patch through the API moves ownership: who changes a field owns it.
- `kubectl apply --server-side` over an object of client-side apply conflicts with nothing that its annotation says.
- An apply that changes nothing changes no time either, so it is no write.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from trainyard.objects import Json, decode, parse_time
from trainyard.objects.strict import ManifestError, load
from trainyard.objects.values import replace
from trainyard.schema.checks import shown
from trainyard.schema.compiled import too_deep
from trainyard.server import errors, types
from trainyard.server.apply_sets import (
    Fields,
    NotTyped,
    Path,
    at,
    differing,
    dotted,
    fields_of,
    merged,
    read,
    removed,
    write,
)
from trainyard.server.resources import Resource

APPLY = "application/apply-patch+yaml"
FIRST = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
LONGEST_NAME = 128


class Who(NamedTuple):
    """Who writes: a manager's name, through which subresource, and when."""

    manager: str
    subresource: str = ""
    stamp: str = ""
    force: bool = False


class Owner(msgspec.Struct, frozen=True):
    """One entry of managedFields."""

    manager: str
    operation: str
    version: str
    time: str
    subresource: str
    paths: frozenset[Path]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Who applies is the same whatever version of the API he writes."""
        return self.manager, self.operation, "" if self.operation == "Apply" else self.version, self.subresource

    def entry(self) -> Json:
        below = {"subresource": self.subresource} if self.subresource else {}
        return {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": write(self.paths),
            **below,
        }


def read_config(body: bytes) -> Json:
    """The body of an apply: YAML, of which JSON is a part. Raises Refused 400."""
    try:
        sent = decode(body) if body[:1] == b"{" else _of_yaml(body)
    except ManifestError as error:
        raise errors.bad_request(f"error decoding YAML: {errors.printable(str(error))}") from None
    except ValueError as error:
        raise errors.bad_request(f"error decoding patch: {errors.printable(str(error))}") from None
    if too_deep(sent):
        raise errors.bad_request("error decoding patch: it is nested too deep; flatten it")
    if not isinstance(sent, dict):
        raise errors.bad_request("error decoding patch: it must be an object")
    return sent


def _of_yaml(body: bytes) -> Any:
    """The one document, None when there is another number. This reader is bounded: others let aliases of aliases fill
    the memory, and libyaml's own ends the process when it is led too deep."""
    documents = load(body, "patch")
    return documents[0].value if len(documents) == 1 else None


def first(resource: Resource, config: Json, who: Who) -> Json:
    """The object that an apply makes, with its owner. Raises Refused as `applied` does."""
    shape = types.shape_of(resource)
    paths = _own(resource, _typed(resource, config, shape), who)
    owner = Owner(who.manager, "Apply", resource.api_version, who.stamp, who.subresource, frozenset(paths))
    return {**config, "metadata": {**config["metadata"], "managedFields": entries([owner] if paths else [])}}


def applied(resource: Resource, live: Json, config: Json, who: Who) -> Json:
    """What `live` becomes, with managedFields. Raises Refused 409 for what others own, 500 for what has no type."""
    shape = types.shape_of(resource)
    sent = _typed(resource, config, shape)
    own = _own(resource, sent, who)
    now = fields_of(live, shape)
    owners = owners_of(live) or [_before(resource, live, now, who)]
    mine = next((one for one in owners if one.key == (who.manager, "Apply", "", who.subresource)), None)
    others = [one for one in owners if one is not mine]
    # null and {} for what is an object already, and null for what is not there, change nothing
    idle = {path for path in own if sent[path] in (None, {}) and _idle(sent[path], at(live, shape, path))}
    changed = differing(now, {path: sent[path] for path in own - idle})
    others = _settled(others, changed, who, live, resource)
    kept = {path[:end] for one in others for path in one.paths for end in range(1, len(path) + 1)}
    gone = (mine.paths if mine else frozenset()) - own - kept
    gone = frozenset(path for path in gone if at(config, shape, path) is None)
    new = merged(live, {name: part for name, part in config.items() if name != "metadata"}, shape)
    metadata = {name: part for name, part in (config.get("metadata") or {}).items() if name in _APPLIED_META}
    new["metadata"] = merged(live["metadata"], metadata, types.built_in(f"{types.META}ObjectMeta"))
    new = removed(new, shape, gone, lambda path: at(config, shape, path) is not None) if gone else new
    me = Owner(who.manager, "Apply", resource.api_version, who.stamp, who.subresource, frozenset(own))
    if mine is not None and mine.paths == me.paths and not changed and not gone:
        me = replace(me, time=mine.time)
    if own or owners_of(live):  # who says nothing of what nobody has applied has not begun
        new["metadata"]["managedFields"] = entries([*others, me] if own else others)
    meta = config.get("metadata") or {}
    for name in ("name", "namespace", "resourceVersion", "uid"):
        if asked := meta.get(name):
            new["metadata"][name] = asked
    if not meta.get("name", True):  # said, but nothing: whoever takes it hears of it
        new["metadata"].pop("name", None)
    return dict(new)


def _idle(value: Any, there: Any) -> bool:
    return (value is None and there is None) or (value in (None, {}) and isinstance(there, dict))


_APPLIED_META = ("labels", "annotations", "ownerReferences", "finalizers")


def must_be_typed(resource: Resource, config: Json) -> None:
    """Raises Refused 500, as the real server, for what does not fit the schema."""
    _typed(resource, config, types.shape_of(resource))


def _typed(resource: Resource, config: Json, shape: types.Shape) -> Fields:
    if (config.get("metadata") or {}).get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    meta = config.get("metadata") or {}
    who = f"({meta.get('namespace', '')}/{meta.get('name', '')}; {resource.api_version}, Kind={resource.kind})"
    try:
        found = fields_of(config, shape, strict=True)
    except NotTyped as error:
        raise errors.Refused(500, "", errors.printable(f"failed to create typed patch object {who}: {error}")) from None
    born = meta.get("creationTimestamp")
    if not resource.custom and born is not None and parse_time(born) is None:
        text = f"failed to convert new object {who} to proper version: creationTimestamp {shown(born)} is no time"
        raise errors.Refused(500, "", errors.printable(text))
    return found


def _own(resource: Resource, sent: Fields, who: Who) -> set[Path]:
    """What of an apply counts: /status takes the status, the main path everything else."""
    if who.subresource == "status":
        return {path for path in sent if path[0] == "f:status"}
    return {path for path in sent if path[0] != "f:status" or not resource.status}


def _before(resource: Resource, live: Json, now: Fields, who: Who) -> Owner:
    """The owner of what was there before anybody applied."""
    nobodys = set(resource.unowned(live)) if resource.unowned else frozenset()
    return Owner(FIRST, "Update", resource.api_version, who.stamp, "", frozenset(now) - nobodys)


def _settled(others: list[Owner], changed: set[Path], who: Who, live: Json, resource: Resource) -> list[Owner]:
    """The other owners after the change of these paths. Raises Refused 409 when it is none of our business."""
    told = changed - _said_before(live, resource) if who.manager == _KUBECTL else changed
    clashes = [(one, sorted(one.paths & told)) for one in others if one.paths & told]
    if clashes and not who.force:
        raise _conflict(clashes)
    left = [replace(one, paths=one.paths - changed) for one in others]
    return [one for one in left if one.paths]


def _said_before(live: Json, resource: Resource) -> set[Path]:
    """What kubectl's annotation of client-side apply says, where it still is so: that has never been another's."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not isinstance(text, str):
        return set()
    try:
        shape = types.shape_of(resource)
        said = fields_of(decode(text.encode()), shape)
        return set(said) - differing(fields_of(live, shape), said)
    except (ValueError, TypeError, AttributeError):
        return set()


def _conflict(clashes: list[tuple[Owner, list[Path]]]) -> errors.Refused:
    causes, texts = [], []
    for owner, paths in clashes:
        using = f" using {owner.version}" if owner.operation == "Update" else ""
        below = f' with subresource "{owner.subresource}"' if owner.subresource else ""
        named = f'"{owner.manager}"{below}{using}'
        for path in paths:
            message = f"conflict with {named}"
            causes.append({"reason": "FieldManagerConflict", "message": message, "field": dotted(path)})
        one = f"conflict with {named}: {dotted(paths[0])}"
        many = f"conflicts with {named}:\n" + "\n".join(f"- {dotted(path)}" for path in paths)
        texts.append(one if len(paths) == 1 else many)
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    listed = "\n".join(texts)
    return errors.Refused(409, "Conflict", f"Apply failed with {count}: {listed}", {"causes": causes})


def owners_of(obj: Json) -> list[Owner]:
    """The entries of managedFields that can be read."""
    listed = obj["metadata"].get("managedFields")
    return [_owner(one) for one in (listed if isinstance(listed, list) else ()) if _readable(one)]


def _readable(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("manager"), str) and one.get("operation") in ("Apply", "Update")


def _owner(one: Json) -> Owner:
    version, time, below = (str(one.get(name) or "") for name in ("apiVersion", "time", "subresource"))
    return Owner(one["manager"], one["operation"], version, time, below, frozenset(read(one.get("fieldsV1"))))


def entries(owners: list[Owner]) -> list[Json]:
    """managedFields: who applied first, then by time."""
    return [one.entry() for one in sorted(owners, key=lambda one: (one.operation, one.time, *one.key))]


def owned(resource: Resource, content_type: str, objects: tuple[Json, Json, Json], who: Who) -> None:
    """Writes managedFields into the last of (old, sent, new). Nothing happens to what nobody ever applied."""
    old, sent, new = objects
    listed = sent["metadata"].get("managedFields")
    if content_type == APPLY:
        new["metadata"].pop("managedFields", None)
        if listed:
            new["metadata"]["managedFields"] = listed
    elif "managedFields" in old["metadata"]:
        tracked(resource, old, new, who, listed)
    else:
        new["metadata"].pop("managedFields", None)


def tracked(resource: Resource, old: Json, new: Json, who: Who, sent: Any = None) -> None:
    """Moves ownership in `new` after an update of an object that somebody applies. `sent` is what the client wrote."""
    owners = owners_of(old)
    if isinstance(sent, list) and sent != old["metadata"].get("managedFields"):
        if sent == [{}]:
            owners = []
        elif theirs := owners_of({"metadata": {"managedFields": sent}}):
            owners = theirs
    if not owners:
        new["metadata"].pop("managedFields", None)
        return
    shape = types.shape_of(resource)
    before, after = fields_of(old, shape), fields_of(new, shape)
    changed, gone = differing(before, after), set(before) - set(after)
    me = Owner(who.manager, "Update", resource.api_version, who.stamp, who.subresource, frozenset(changed))
    left = []
    for one in owners:
        if changed and one.key == me.key:
            me = replace(me, paths=me.paths | (one.paths - gone))
        else:
            left.append(replace(one, paths=one.paths - changed - gone))
    owners = [one for one in (*left, me) if one.paths]
    new["metadata"].pop("managedFields", None)
    if owners:
        new["metadata"]["managedFields"] = entries(owners)
