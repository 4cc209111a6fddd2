"""What a cluster has from the beginning: made at its first start, renewed at each later one.

The roles and bindings are renewed as the real server renews its own, so that a newer program brings its rights along:

- what is missing is made: objects, rules, subjects, labels, annotations;
- what somebody has added stays, and so does a label or an annotation that he has changed;
- a binding to another role is made anew, for the role of a binding cannot change;
- an object with the annotation rbac.authorization.kubernetes.io/autoupdate: "false" is nobody's but his.

Nothing is written when nothing is missing. Of all other objects only the presence is looked at.
"""

from __future__ import annotations

from collections.abc import Callable

from trainyard.objects import Json, decode, encode
from trainyard.server import bootstrap, rbac
from trainyard.server.access import GROUP
from trainyard.server.errors import Refused
from trainyard.server.requests import Answer, Request, Response


def furnish(answer: Callable[[Request], Answer]) -> None:
    """`answer` is the verbs', asked as the administrator."""
    for path, ours in bootstrap.objects():
        place = f"{path}/{ours['metadata']['name']}"
        stored = _stored(answer, place)
        if stored is None:
            answer(Request("POST", path, body=encode(ours)))
        elif not ours["apiVersion"].startswith(GROUP) or _left_alone(stored):
            continue
        elif stored.get("roleRef") != ours.get("roleRef"):
            answer(Request("DELETE", place))
            answer(Request("POST", path, body=encode({**ours, "subjects": renewed(stored, ours)["subjects"]})))
        elif (new := renewed(stored, ours)) != stored:
            answer(Request("PUT", place, body=encode(new)))


def renewed(stored: Json, ours: Json) -> Json:
    """A role or a binding with all that ours has, too."""
    new = {**stored, "metadata": dict(stored["metadata"])}
    for part in ("labels", "annotations"):
        new["metadata"][part] = {**ours["metadata"].get(part, {}), **(stored["metadata"].get(part) or {})}
    if "rules" in ours:
        held = stored.get("rules") or []
        new["rules"] = [*held, *(rule for rule in ours["rules"] if rbac.beyond(held, [rule]))]
    if "subjects" in ours:
        held = stored.get("subjects") or []
        new["subjects"] = [*held, *(one for one in ours["subjects"] if one not in held)]
    return new


def _left_alone(stored: Json) -> bool:
    return (stored["metadata"].get("annotations") or {}).get(bootstrap.AUTOUPDATE) == "false"


def _stored(answer: Callable[[Request], Answer], place: str) -> Json | None:
    try:
        found = answer(Request("GET", place))
    except Refused as refused:
        if refused.code != 404:
            raise
        return None
    return decode(found.body) if isinstance(found, Response) else None
