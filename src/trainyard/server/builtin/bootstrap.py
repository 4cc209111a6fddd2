"""Creates the bootstrap objects (bootstrap_objects.py) at the first start of a cluster, and reconciles them at later
starts.

Default roles and bindings are reconciled as by kube-apiserver, so that a newer release adds its permissions:

- missing objects, rules, subjects, labels and annotations are added;
- additions of users are kept, and so are labels and annotations that they changed;
- a binding with another roleRef is deleted and created again, because roleRef is immutable;
- an object with the annotation rbac.authorization.kubernetes.io/autoupdate: "false" is not changed.

Nothing is written when nothing is missing. Other bootstrap objects are only created when they do not exist.
"""

from __future__ import annotations

from collections.abc import Callable

from trainyard.objects import Json, decode, encode
from trainyard.server.auth import rbac
from trainyard.server.auth.authorization import GROUP
from trainyard.server.builtin import bootstrap_objects
from trainyard.server.model.errors import StatusError
from trainyard.server.model.requests import Answer, Request, Response


def bootstrap(answer: Callable[[Request], Answer]) -> None:
    """Create or reconcile the bootstrap objects. `answer` is `Verbs.answer`; the requests are the administrator's.
    Raises StatusError."""
    for collection_path, default in bootstrap_objects.objects():
        object_path = f"{collection_path}/{default['metadata']['name']}"
        stored = _stored(answer, object_path)
        if stored is None:
            answer(Request("POST", collection_path, body=encode(default)))
        elif not default["apiVersion"].startswith(GROUP) or _is_autoupdate_disabled(stored):
            continue
        elif stored.get("roleRef") != default.get("roleRef"):
            answer(Request("DELETE", object_path))
            answer(
                Request(
                    "POST",
                    collection_path,
                    body=encode({**default, "subjects": reconciled(stored, default)["subjects"]}),
                )
            )
        elif (new := reconciled(stored, default)) != stored:
            answer(Request("PUT", object_path, body=encode(new)))


def reconciled(stored: Json, default: Json) -> Json:
    """The stored role or binding with all rules, subjects, labels and annotations of the default `default` added."""
    new = {**stored, "metadata": dict(stored["metadata"])}
    for field in ("labels", "annotations"):
        new["metadata"][field] = {**default["metadata"].get(field, {}), **(stored["metadata"].get(field) or {})}
    if "rules" in default:
        current = stored.get("rules") or []
        new["rules"] = [*current, *(rule for rule in default["rules"] if rbac.missing_rules(current, [rule]))]
    if "subjects" in default:
        current = stored.get("subjects") or []
        new["subjects"] = [*current, *(subject for subject in default["subjects"] if subject not in current)]
    return new


def _is_autoupdate_disabled(stored: Json) -> bool:
    return (stored["metadata"].get("annotations") or {}).get(bootstrap_objects.AUTOUPDATE) == "false"


def _stored(answer: Callable[[Request], Answer], path: str) -> Json | None:
    try:
        response = answer(Request("GET", path))
    except StatusError as refused:
        if refused.code != 404:
            raise
        return None
    return decode(response.body) if isinstance(response, Response) else None
