"""The CustomResourceDefinitions of our kinds in the embedded API server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

from trainyard import kinds
from trainyard.client import AlreadyExists, ApiClient
from trainyard.client.request import create
from trainyard.core import Kind
from trainyard.objects import Json, Problem, labels_of, name_of, namespace_of
from trainyard.objects.resources import CRD
from trainyard.objects.review import Reviewer
from trainyard.server import trust_crd


async def install_kinds(api: ApiClient, to_install: Iterable[Kind]) -> None:
    """Install the CustomResourceDefinitions of these kinds, and the objects that come with them. Existing definitions
    are brought to the version of this program; existing objects are left to the user. Raises ApiError."""
    to_install = tuple(to_install)
    installed = {name_of(crd): crd for crd in (await api.list(CRD)).get("items") or ()}
    for definition in kinds.crds(to_install):
        trust_crd(definition)  # known to be valid: validating all of them takes as long as the rest of a start
        try:
            if (stored := installed.get(name_of(definition))) is None:
                # `send` does not parse the response, which is as large as the definition and not used.
                await api.send(create(CRD, "", definition))
            elif not _is_of_this_version(stored, definition):  # patching all took 0.2 s of a start
                await _update(api, definition)
        except AlreadyExists:
            await _update(api, definition)
    for gvk, obj in (item for kind in to_install for item in kinds.shipped_objects(kind)):
        with contextlib.suppress(AlreadyExists):
            await api.send(create(gvk, namespace_of(obj), obj))


async def _update(api: ApiClient, definition: Json) -> None:
    patch = {"metadata": {"labels": definition["metadata"].get("labels")}, "spec": definition["spec"]}
    await api.patch(CRD, "", name_of(definition), patch)


def _is_of_this_version(stored: Json, definition: Json) -> bool:
    """Whether a patch of the stored CustomResourceDefinition with this one would change nothing."""
    has_labels = labels_of(definition).items() <= labels_of(stored).items()
    return has_labels and {**stored["spec"], **definition["spec"]} == stored["spec"]


def kind_checks() -> dict[tuple[str, str], Callable[[Json, Json | None], list[Problem]]]:
    """The rules of each kind, and of the objects that have templates of jobs, by (API group, kind)."""
    checks = {(kind.gvk.group, kind.gvk.kind): kinds.rules_check(kind) for kind in kinds.ALL}
    for kind in kinds.ALL:
        checks |= kinds.template_checks(kind)
    return checks


def kind_reviewers() -> dict[tuple[str, str], Reviewer]:
    """The admission webhooks of the kinds, by (API group, kind)."""
    return {key: reviewer for kind in kinds.ALL for key, reviewer in kinds.reviewers(kind).items()}
