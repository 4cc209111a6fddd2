"""The requests of a leader election for its Lease: each write carries the resourceVersion that was read.

Of two candidates that acquire a Lease at the same time, one therefore gets a Conflict.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

from trainyard.client import ApiClient, NotFound
from trainyard.controller_runtime.lease import LeaseIdentity, LeaseRecord, parse_lease
from trainyard.objects import Json, name_of
from trainyard.objects.resources import LEASE

LABELS = {"app.kubernetes.io/part-of": "trainyard"}
SELECTOR = "app.kubernetes.io/part-of=trainyard"


class LeaseClient:
    """Reads and writes the Lease of one candidate. `duration`: leaseDurationSeconds; `now`: the wall clock of the
    timestamps (Unix seconds). Every method raises the ApiErrors of its request."""

    def __init__(self, api: ApiClient, lease_id: LeaseIdentity, duration: float, now: Callable[[], float]) -> None:
        self._api, self._id, self._now = api, lease_id, now
        self._duration = max(1, round(duration))

    async def get(self) -> LeaseRecord | None:
        """The Lease of the candidate, None when it does not exist."""
        if self._id.claim is not None:  # the RBAC rules of a candidate with a claim have list instead of get
            leases = await self.list_all()
            return next((parse_lease(lease) for lease in leases if name_of(lease) == self._id.name), None)
        with contextlib.suppress(NotFound):
            return parse_lease(await self._api.get(LEASE, self._id.namespace, self._id.name))
        return None

    async def list_all(self) -> list[Json]:
        """The Leases of all operators, without resourceVersion: a consistent read, no older than the request."""
        return list((await self._api.list(LEASE, self._id.namespace, SELECTOR)).get("items") or ())

    async def create(self) -> LeaseRecord:
        """Create the Lease with this candidate as its holder."""
        names = {"name": self._id.name, "namespace": self._id.namespace}
        body = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**names, **self._claim_metadata()},
            "spec": {**self._renewed_spec(), "acquireTime": self._timestamp(), "leaseTransitions": 0},
        }
        return parse_lease(await self._api.create(LEASE, self._id.namespace, body))

    async def renew(self, record: LeaseRecord) -> LeaseRecord:
        """Renew the Lease that this candidate holds."""
        return await self._patch(record, self._renewed_spec())

    async def acquire(self, record: LeaseRecord) -> LeaseRecord:
        """Take the Lease over from an expired holder, or when it has none."""
        spec = {"acquireTime": self._timestamp(), "leaseTransitions": record.transitions + 1}
        return await self._patch(record, {**self._renewed_spec(), **spec})

    async def release(self, record: LeaseRecord) -> None:
        """Remove this candidate as the holder, so that another one can acquire the Lease at once."""
        spec: Json = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._timestamp()}
        await self._patch(record, spec)

    async def clear(self, name: str, record: LeaseRecord) -> None:
        """Remove the holder of another, expired Lease: its next renewal gets a Conflict."""
        await self._patch(record, {"holderIdentity": None, "renewTime": self._timestamp()}, name)

    async def close(self) -> None:
        """Close the connections of the API client."""
        await self._api.close()

    async def _patch(self, record: LeaseRecord, spec: Json, name: str = "") -> LeaseRecord:
        own = self._claim_metadata() if not name else {}
        body = {"metadata": {"resourceVersion": record.revision, **own}, "spec": spec}
        return parse_lease(await self._api.patch(LEASE, self._id.namespace, name or self._id.name, body))

    def _claim_metadata(self) -> Json:
        """Labels and annotations of a Lease with a claim."""
        claim = self._id.claim
        return {} if claim is None else {"labels": LABELS, "annotations": claim.annotations()}

    def _renewed_spec(self) -> Json:
        return {
            "holderIdentity": self._id.identity,
            "leaseDurationSeconds": self._duration,
            "renewTime": self._timestamp(),
        }

    def _timestamp(self) -> str:
        """The present time as a MicroTime, the type of the times of a Lease."""
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
