"""What happens to an object on its way in: it is read, cleaned, defaulted, filled in and checked.

Order, the same for every resource: can it be read at all (decoding.py), identity (apiVersion, kind, name, namespace)
-> metadata -> prune -> default -> schema -> `prepare` and `admit` of the strategy, its check, then the check that the
server was given for the kind, or else the rules of its definition -> generation.
A problem of the schema hides the cross-field checks: those may trust the types. A write is not refused for a problem
that the stored object has already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema import Schema
from trainyard.schema.checks import DEPTH, TYPE_TEXT, WORDS, shown
from trainyard.schema.compiled import too_deep
from trainyard.server import decoding, errors, metadata, scale, types
from trainyard.server.resources import Check, Resource
from trainyard.server.rules import NOT_CHECKED
from trainyard.server.same import same
from trainyard.server.site import Site
from trainyard.server.types import ANY

Checks = Mapping[tuple[str, str], Check]
BLOCKING = ("Required value", "Unsupported value", "Too long", "Too many")
_IDENTITY = ("apiVersion", "kind", "metadata")
_CHECKED_AGAIN = ("metadata.labels", "metadata.annotations", "metadata.ownerReferences")
"""Of a custom object that is written over, the real server looks at these three times, and tells what it saw."""


def read_object(resource: Resource, obj: Any, namespace: str, name: str) -> Json:
    """The object a client sent, with a well-formed metadata of its own, in stored form. Raises Refused 400.

    A custom object of another kind can be read: that it is none of these is said with all else that is wrong with it.
    """
    must_be_readable(resource, obj)
    return placed(resource, obj, namespace, name)


def placed(resource: Resource, obj: Json, namespace: str, name: str) -> Json:
    """The same for what can be read. Raises Refused 400 when it belongs elsewhere."""
    obj = {**obj, **{word: said for word, said in _named(resource).items() if not obj.get(word)}}
    meta = obj.get("metadata") or {}
    if (meta.get("namespace") or namespace) != namespace:
        raise errors.elsewhere()
    if name and (meta.get("name") or name) != name:
        text = f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        raise errors.bad_request(text)
    obj = {**obj, "metadata": {**meta, **({"name": name} if name else {})}}
    if namespace:
        obj["metadata"]["namespace"] = namespace
    return resource.write(obj) if resource.write else obj


def _named(resource: Resource) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def must_be_readable(resource: Resource, obj: Any, shallow: bool = False) -> bool:
    """Raises Unreadable for what is no object of this resource's type.

    `shallow`: somebody has seen already that it is not too deep.
    True: it is of a built-in type, every field is known and none is null, so nobody has to look for such again.
    """
    if not shallow and too_deep(obj):
        raise errors.Unreadable(f"the object is nested deeper than {DEPTH} levels; flatten it")
    if not isinstance(obj, dict):
        raise errors.Unreadable(f"the object provided is unrecognized: it must be a JSON object, got {shown(obj)}")
    for word, expected in _named(resource).items():
        if not resource.custom and obj.get(word) in (None, ""):
            continue
        if not isinstance(obj.get(word), str) or not obj[word]:
            raise errors.Unreadable(f'Object "{word}" is missing in the body; write "{expected}"')
        if obj[word] != expected and not (resource.custom and word == "kind"):
            text = f"the {word} in the body ({shown(obj[word])}) does not match the expected one ({expected})"
            raise errors.Unreadable(text)
    shape = ANY if resource.custom else types.shape_of(resource)
    plain = not resource.custom and decoding.plain(obj, shape)
    if plain and shape is not ANY:
        return True  # its metadata are a part of it
    meta = obj.get("metadata")
    if meta is None:
        meta = {}
    why = metadata.malformed(meta) or decoding.metadata_unreadable(meta)
    if not plain:
        why = why or decoding.unreadable(obj, shape)
    if resource.custom and resource.schema is not None:
        why = why or _unreadable_inside(resource.schema, obj)
    if why:
        text = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {why}'
        raise errors.Unreadable(errors.printable(text))
    return plain


def _unreadable_inside(schema: Schema, obj: Json) -> str:
    """Why the first of the objects inside this one cannot be read, "" when they can."""
    for path, one in schema.embedded(obj):
        for word in ("apiVersion", "kind"):
            if not isinstance(one.get(word, ""), str):
                return f"{path}.{word}: Invalid value: {shown(one[word])}: must be a string"
        meta = one.get("metadata")
        if meta is not None and (why := metadata.malformed(meta) or decoding.metadata_unreadable(meta)):
            return f"{path}.metadata: Invalid value: {shown(meta)}: {why}"
    return ""


def create(resource: Resource, obj: Json, site: Site, checks: Checks) -> Json:
    """The object as it is born. Raises Refused 422 with every problem."""
    meta = metadata.cleaned(obj["metadata"], None)
    new = {**obj, "metadata": meta}
    if resource.status and not resource.born_with_status:
        new.pop("status", None)
    meta["uid"] = metadata.fresh_uid()
    meta["creationTimestamp"] = site.stamp
    if resource.generation:
        meta["generation"] = 1
    elif isinstance(sent := obj["metadata"].get("generation"), int) and sent:
        meta["generation"] = sent  # nobody counts, so nobody minds
    new, found = _shape(resource, new, None, site, checks)
    if new["kind"] == resource.kind:
        found = metadata.problems(meta, resource.name_rule, custom=resource.custom) + found
    _refuse(resource, new, found)
    _warn_of_finalizers(resource, new, None, site)
    return new


def update(resource: Resource, obj: Json, old: Json, site: Site, checks: Checks) -> Json:
    """What `old` becomes when somebody writes `obj` over it. The status stays, where it has a path of its own."""
    new = {**obj, "metadata": metadata.cleaned(obj["metadata"], old["metadata"])}
    if resource.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    new, shape_problems = _shape(resource, new, old, site, checks)
    if new["kind"] != resource.kind:
        _refuse(resource, new, shape_problems)
    found = metadata.problems(new["metadata"], resource.name_rule, custom=resource.custom)
    found += (changes := _changed_finalizers(new, old) + metadata.changed(obj["metadata"], old["metadata"]))
    again = [*changes, *[one for one in found if one.path.startswith(_CHECKED_AGAIN)] * 2] if resource.custom else []
    found += [problem for path in resource.immutable for problem in _changed(new, old, path)]
    _refuse(resource, new, found + shape_problems, again)
    _warn_of_finalizers(resource, new, old, site)
    if resource.generation and not same(_spec(resource, new), _spec(resource, old)):
        new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
    return new


def update_status(resource: Resource, obj: Json, old: Json, checks: Checks) -> Json:
    """What `old` becomes when somebody writes `obj` over its /status: only the status changes."""
    if resource.custom:
        new = {name: part for name, part in old.items() if name != "status"}
        new["metadata"] = dict(old["metadata"])
    else:
        new = {name: part for name, part in old.items() if name not in ("metadata", "status")}
        new["metadata"] = metadata.cleaned(obj["metadata"], old["metadata"])
        if resource.prepare_status is None:
            _keep(new["metadata"], old["metadata"], "ownerReferences", "finalizers")  # not a matter of status
    _refuse(resource, obj, _other_kind(resource, obj))
    status = obj.get("status")
    if status is not None:
        new["status"] = status
    if resource.custom and resource.schema is not None:
        new = _stored_shape(resource, new)
        # A spec that an older definition let in must not keep its status from being told.
        about_status = [one for one in resource.schema.validate(new, measured=True) if one.path.startswith("status")]
        if resource.scale is not None:
            about_status += scale.problems(resource.scale, new, status_only=True)
        # Our own kinds have checks in place of the rules, about their specs alone.
        ruled = resource.rules if (resource.group, resource.kind) not in checks else None
        _refuse(resource, new, about_status + (ruled(new, old) if ruled and not about_status else []))
    elif not isinstance(status, dict | None):
        text = f"Invalid value: {shown(status)}: must be {WORDS['object']}"
        _refuse(resource, new, [Problem("status", text)])
    if not resource.custom:
        if resource.prepare_status is not None:
            resource.prepare_status(new, old, obj)
        found = metadata.problems(new["metadata"], resource.name_rule) + _changed_finalizers(new, old)
        found += metadata.changed_uid(obj["metadata"], old["metadata"])
        _refuse(resource, new, found + list(resource.check_status(new, old) if resource.check_status else ()))
    return new


def _keep(meta: Json, old: Json, *names: str) -> None:
    for name in names:
        meta.pop(name, None)
        if name in old:
            meta[name] = old[name]


def _stored_shape(resource: Resource, obj: Json) -> Json:
    schema = resource.schema
    if schema is None:
        return obj
    return dict(schema.default(schema.prune(obj) if resource.prune else obj))


def _shape(resource: Resource, new: Json, old: Json | None, site: Site, checks: Checks) -> tuple[Json, list[Problem]]:
    new = _stored_shape(resource, new)
    if found := _other_kind(resource, new):
        return new, found
    if resource.schema is not None and (found := resource.schema.validate(new, measured=True)):
        found = _made_worse(resource.schema, found, new, old) + _unscalable(resource, new)
        if found or resource.rules is None:
            own = (resource.group, resource.kind) in checks
            return new, found + ([] if own else _ruled(resource, new, old, found))
    resource.prepare(new, old, site)
    resource.admit(new, old, site)
    found = [*resource.check(new, old), *_unscalable(resource, new)]
    if check := checks.get((resource.group, resource.kind)):
        found += check(new, old)
    else:
        found += _ruled(resource, new, old, found)
    return new, found


def _unscalable(resource: Resource, obj: Json) -> list[Problem]:
    return list(scale.problems(resource.scale, obj)) if resource.custom and resource.scale is not None else []


def _other_kind(resource: Resource, obj: Json) -> list[Problem]:
    if obj["kind"] == resource.kind:
        return []
    return [Problem("kind", f"Invalid value: {shown(obj['kind'])}: must be {resource.kind}")]


def _ruled(resource: Resource, new: Json, old: Json | None, found: list[Problem]) -> list[Problem]:
    """What the rules of a definition say, unless the object is so wrong that they cannot be asked."""
    if resource.rules is None:
        return []
    if any(problem.text.startswith(BLOCKING) or TYPE_TEXT.match(problem.text) for problem in found):
        return [Problem("", f"Invalid value: null: {NOT_CHECKED}")]
    return resource.rules(new, old)


def _made_worse(schema: Schema, found: list[Problem], new: Json, old: Json | None) -> list[Problem]:
    """The problems that this write brings. Those of an object that an older definition let in are not its fault.

    What is missing is the fault of whoever writes the object that it is missing from.
    """
    known = set() if old is None else set(schema.validate(old))

    def untouched(problem: Problem) -> bool:
        missing = problem.text.startswith("Required value")
        place = problem.path.rpartition(".")[0] if missing else problem.path
        return same(_at(new, place), _at(old, place))

    return [problem for problem in found if problem not in known or not untouched(problem)]


def _refuse(resource: Resource, obj: Json, problems: list[Problem], again: Sequence[Problem] = ()) -> None:
    """`again`: those of the problems that are told more than once."""
    if problems:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
        group = str(obj["apiVersion"]).rpartition("/")[0] if resource.write else resource.group  # as it is stored
        raise errors.invalid(obj["kind"], group, name, [*dict.fromkeys(problems), *again])


def _warn_of_finalizers(resource: Resource, new: Json, old: Json | None, site: Site) -> None:
    known = (old["metadata"].get("finalizers") or ()) if old is not None else ()
    for one in new["metadata"].get("finalizers") or () if resource.custom else ():
        if "/" not in one and one not in metadata.STANDARD_FINALIZERS and one not in known:
            why = "to avoid accidental conflicts with other finalizer writers"
            site.warnings.append(f'metadata.finalizers: "{one}": prefer a domain-qualified finalizer name {why}')


def _changed_finalizers(new: Json, old: Json) -> list[Problem]:
    if "deletionTimestamp" not in old["metadata"]:
        return []
    fresh = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
    if not fresh:
        return []
    text = "no new finalizers can be added if the object is being deleted, found new finalizers"
    return [Problem("metadata.finalizers", f"Forbidden: {text} {shown(sorted(fresh))}")]


def _changed(new: Json, old: Json, path: str) -> list[Problem]:
    before, after = _at(old, path), _at(new, path)
    if same(before, after):
        return []
    return [Problem(path, f"Invalid value: {shown(after)}: field is immutable")]


def _at(obj: Any, path: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(obj, list):
            obj = obj[int(step)] if step.isdigit() and int(step) < len(obj) else None
        else:
            obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _spec(resource: Resource, obj: Json) -> Any:
    """What the generation counts versions of."""
    if not resource.custom:
        return obj.get("spec")
    left_out = (*_IDENTITY, "status") if resource.status else _IDENTITY
    return {name: part for name, part in obj.items() if name not in left_out}
