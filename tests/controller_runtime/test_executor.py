"""The write executor: what the answers of the API server mean for each write."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.client import AlreadyExists, ApiClient, ApiError, Conflict, Forbidden, NotFound
from trainyard.controller_runtime.executor import QUOTA_TRIES, NameTaken, WriteExecutor
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.store import Store
from trainyard.objects import GVK, Json, controller_reference
from trainyard.objects.resources import POD, SERVICE
from trainyard.objects.writes import Create, Delete, Patch

OWNER = "u-job"
LABEL = "trainyard.dev/owner"
POD_OBJECT: Json = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}
CREATE = Create(POD, POD_OBJECT)


def pod(owner: str = OWNER, labels: Json | None = None) -> Json:
    reference = controller_reference("batch/v1", "Job", "j", owner)
    meta = {"uid": "u-pod", "resourceVersion": "7", "ownerReferences": [reference], "labels": labels or {}}
    return {**POD_OBJECT, "metadata": {**POD_OBJECT["metadata"], **meta}}


class Api(ApiClient):
    """Answers every write with `answer`, or raises it, and lists `existing`."""

    def __init__(self, answer: Json | ApiError, *existing: Json) -> None:
        self.answer, self.existing, self.creates = answer, existing, 0

    async def _answer(self) -> Json:
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer

    async def create(self, *arguments: Any, **options: Any) -> Json:
        self.creates += 1
        return await self._answer()

    async def patch(self, *arguments: Any, **options: Any) -> Json:
        return await self._answer()

    async def delete(self, *arguments: Any, **options: Any) -> Json:
        return await self._answer()

    async def list(self, *arguments: Any, field_selector: str = "", **options: Any) -> Json:
        assert field_selector == "metadata.name=p"
        return {"items": list(self.existing)}


def executor(api: Api, owner_label: str = "") -> WriteExecutor:
    stores: dict[GVK, Store[Json]] = {POD: Store(dict_adapter())}
    return WriteExecutor(api, InFlightWrites(stores), owner_label)


TAKEN = AlreadyExists(409, "AlreadyExists", 'pods "p" already exists')


async def test_an_accepted_write_is_in_flight() -> None:
    for write in (CREATE, Patch(POD, "n", "p", {})):
        sender = executor(Api(pod()))
        await (sender.create(write, OWNER) if isinstance(write, Create) else sender.patch(write, OWNER))
        assert sender.in_flight.has_pending(OWNER)


async def test_a_write_of_a_resource_without_a_store_is_not_waited_for() -> None:
    sender = executor(Api(pod()))
    await sender.patch(Patch(SERVICE, "n", "p", {}), OWNER)
    assert not sender.in_flight.has_pending(OWNER)


@pytest.mark.parametrize(("kind", "tries"), [("resourcequotas", QUOTA_TRIES), ("pods", 1)])
async def test_a_create_is_sent_again_when_other_creates_changed_the_quota(kind: str, tries: int) -> None:
    api = Api(Conflict(409, "Conflict", "the object has been modified", {"kind": kind, "name": "compute"}))
    with pytest.raises(Conflict):
        await executor(api).create(CREATE, OWNER)
    assert api.creates == tries


async def test_an_existing_object_of_the_same_owner_is_the_created_one() -> None:
    sender = executor(Api(TAKEN, pod()))
    await sender.create(CREATE, OWNER)
    assert sender.in_flight.has_pending(OWNER)


@pytest.mark.parametrize(
    ("existing", "label"),
    [(pod("u-other"), ""), (pod(), LABEL), (pod(labels={LABEL: "u-other"}), LABEL), (POD_OBJECT, "")],
)
async def test_an_object_of_another_owner_or_without_the_label_takes_the_name(existing: Json, label: str) -> None:
    sender = executor(Api(TAKEN, existing), label)
    with pytest.raises(NameTaken) as raised:
        await sender.create(CREATE, OWNER)
    assert raised.value.existing is not None
    assert raised.value.existing["metadata"] == existing["metadata"] and raised.value.message == TAKEN.message
    assert not sender.in_flight.has_pending(OWNER)


async def test_an_object_with_the_label_of_the_owner_is_the_created_one() -> None:
    await executor(Api(TAKEN, pod(labels={LABEL: OWNER})), LABEL).create(CREATE, OWNER)


async def test_a_name_that_is_free_again_is_a_conflict() -> None:
    with pytest.raises(Conflict, match="has been deleted"):
        await executor(Api(TAKEN)).create(CREATE, OWNER)


@pytest.mark.parametrize("error", [NotFound(404, "NotFound", "gone"), Conflict(409, "Conflict", "another uid")])
async def test_a_delete_of_an_object_that_is_gone_or_created_anew_succeeds(error: ApiError) -> None:
    await executor(Api(error)).delete(Delete(POD, "n", "p", "u-pod"), OWNER)


async def test_other_errors_are_raised_and_leave_no_write_in_flight() -> None:
    sender = executor(Api(Forbidden(403, "Forbidden", "no")))
    for sent in (sender.create(CREATE, OWNER), sender.patch(Patch(POD, "n", "p", {}), OWNER),
                 sender.delete(Delete(POD, "n", "p", "u-pod"), OWNER)):  # fmt: skip
        with pytest.raises(Forbidden):
            await sent
    assert not sender.in_flight.has_pending(OWNER)
