"""Strategic merge patch as a request: the errors of a merge as in kube-apiserver."""

from __future__ import annotations

from typing import Any

from trainyard.api_types import strategic_merge
from trainyard.api_types.schemas import TypeSchema
from trainyard.objects import Json
from trainyard.server.model.errors import StatusError, printable
from trainyard.server.patch.json_patch import MalformedPatch

PATCH = "application/strategic-merge-patch+json"


class MergeFailed(StatusError):
    """500: the patch cannot be applied to this object."""

    def __init__(self, text: str) -> None:
        super().__init__(500, "", printable(text))


def merge(original: Any, patch: Any, shape: TypeSchema) -> Json:
    """The patched object. Raises MalformedPatch for a malformed patch, MergeFailed for one that cannot be applied."""
    try:
        return strategic_merge.merge(original, patch, shape)
    except strategic_merge.MalformedPatch as error:
        raise MalformedPatch(str(error)) from None
    except strategic_merge.MergeFailed as error:
        raise MergeFailed(str(error)) from None
