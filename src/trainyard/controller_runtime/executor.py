"""Sends the writes of a controller to the API server, one at a time.

Guarantees:
- Each accepted write is recorded in `InFlightWrites` under the uid of the object that was reconciled.
- A delete has a uid precondition: an object re-created under that name is not deleted. NotFound or Conflict is success.
- AlreadyExists on a create is success if the existing object is controlled by the reconciled object: an earlier request
  had no answer, or another replica of this program sent it. Else it is NameTaken.

All other errors of the API server are raised; the controller decides what they mean.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress

from trainyard.client import AlreadyExists, ApiClient, Conflict, Forbidden, NotFound
from trainyard.controller_runtime.in_flight_writes import AcknowledgedWrite, InFlightWrites
from trainyard.objects import GVK, Json, controller_of, labels_of, resource_version_of, uid_of
from trainyard.objects.writes import Create, Delete, Patch

QUOTA_TRIES = 5  # requests of a create whose quota other creates change at the same time
QUOTA_DELAY = 0.04  # seconds, the longest pause before the second of them; it doubles


class NameTaken(AlreadyExists):
    """The name of an object to create is taken by `existing`, which the reconciled object does not control; None when
    the existing object may not be read."""

    def __init__(self, error: AlreadyExists, existing: Json | None) -> None:
        super().__init__(error.code, error.reason, error.message, error.details)
        self.existing = existing


class WriteExecutor:
    """Sends writes and records them in `in_flight`. `owner_uid` is the uid of the object that was reconciled.

    `owner_label`: the label, with the owner's uid, by which the stores select objects. An existing object without it is
    not taken for the owner's, because no store would ever show it. "": the stores select by no label.
    """

    def __init__(self, api: ApiClient, in_flight: InFlightWrites[GVK], owner_label: str = "") -> None:
        self._api = api
        self._owner_label = owner_label
        self.in_flight = in_flight

    async def create(self, create: Create, owner_uid: str) -> None:
        """Create the object. Raises NameTaken, Conflict when the existing object is gone by now, other ApiErrors."""
        try:
            answer = await self._send_create(create)
        except AlreadyExists as error:
            try:
                answer = await self._read_existing(create)
            except Forbidden:
                raise NameTaken(error, None) from None
            if not self._is_owned(answer, owner_uid):
                raise NameTaken(error, answer) from None
        self.record(owner_uid, create.gvk, answer)

    async def find(self, gvk: GVK, namespace: str, name: str, owner_uid: str) -> bool:
        """Whether the owner controls an object of that name, which is then recorded as written: a create that had no
        answer. One that may not be read counts as none. Raises other ApiErrors."""
        with suppress(NotFound, Forbidden):
            for obj in (await self._api.list(gvk, namespace, field_selector=f"metadata.name={name}")).get(
                "items"
            ) or ():
                if self._is_owned(obj, owner_uid):
                    self.record(owner_uid, gvk, obj)
                    return True
        return False

    async def patch(self, patch: Patch, owner_uid: str, *, version_only: bool = True) -> Json:
        """Patch the object. Returns it, with `version_only` as `ApiClient.create`. Raises NotFound and other
        ApiErrors."""
        answer = await self._api.patch(
            patch.gvk, patch.namespace, patch.name, patch.body, patch.subresource, version_only=version_only
        )
        self.record(owner_uid, patch.gvk, answer)
        return answer

    async def delete(self, delete: Delete, owner_uid: str) -> None:
        """Delete the object if it exists with that uid. Raises ApiErrors."""
        revision = self.in_flight.cached_revision(delete.gvk, delete.uid)
        with suppress(NotFound, Conflict):  # already gone, or re-created with another uid
            await self._api.delete(
                delete.gvk,
                delete.namespace,
                delete.name,
                delete.uid,
                delete.propagation,
                delete.grace_period_seconds,
            )
        write = AcknowledgedWrite(delete.gvk, delete.uid, revision, deleted=True)
        self.in_flight.record(owner_uid, write, time.monotonic())

    async def _send_create(self, create: Create) -> Json:
        """Send a create, and again after a Conflict about a ResourceQuota: many creates of a namespace at once update
        its usage, and the API server gives up after some tries of its own (kubernetes/kubernetes#67761)."""
        for retry in range(QUOTA_TRIES - 1):
            try:
                return await self._api.create(create.gvk, create.namespace, create.obj, version_only=True)
            except Conflict as error:
                if error.details.get("kind") != "resourcequotas":
                    raise
            await asyncio.sleep(random.uniform(0.0, QUOTA_DELAY * 2**retry))
        return await self._api.create(create.gvk, create.namespace, create.obj, version_only=True)

    def record(self, owner_uid: str, gvk: GVK, answer: Json) -> None:
        """Record an accepted write from its answer, the object as it is stored now."""
        write = AcknowledgedWrite(gvk, uid_of(answer), resource_version_of(answer))
        self.in_flight.record(owner_uid, write, time.monotonic())

    def _is_owned(self, existing: Json, owner_uid: str) -> bool:
        owner = controller_of(existing)
        if owner is None or owner.get("uid") != owner_uid:
            return False
        return not self._owner_label or labels_of(existing).get(self._owner_label) == owner_uid

    async def _read_existing(self, create: Create) -> Json:
        """Read the existing object of that name with a list request: a controller lists what it watches, so that it
        needs no further RBAC verb."""
        listed = await self._api.list(create.gvk, create.namespace, field_selector=f"metadata.name={create.name}")
        for obj in listed.get("items") or ():
            return {"apiVersion": create.gvk.api_version, "kind": create.gvk.kind, **obj}
        raise Conflict(
            409, "Conflict", f'{create.gvk.kind} "{create.name}" has been deleted since it blocked the create'
        )
