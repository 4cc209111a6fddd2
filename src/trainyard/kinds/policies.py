"""The optional policy fields in the spec of every kind (docs/rules.md S2)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trainyard.core import Policy
from trainyard.kinds.pods.templates import whole_number
from trainyard.objects import Json

Seconds = Annotated[int, Meta(ge=0, le=2147483647)]
CleanPodPolicyName = Literal["None", "Running", "All"]


class Policies(msgspec.Struct, kw_only=True):
    """Unset is always the documented behaviour of the old operators."""

    cleanPodPolicy: Annotated[
        CleanPodPolicyName | None,
        Meta(
            description="Which children are deleted at the end of the job: None, Running (those that still run) or All."
        ),
    ] = None
    ttlSecondsAfterFinished: Annotated[
        Seconds | None, Meta(description="The job is deleted this many seconds after its end.")
    ] = None
    activeDeadlineSeconds: Annotated[
        Seconds | None, Meta(description="The job fails if it has not ended this many seconds after its start.")
    ] = None
    backoffLimit: Annotated[
        Annotated[int, Meta(ge=0, le=2147483647)] | None,
        Meta(description="The job fails if more attempts of its replicas than this have failed."),
    ] = None
    suspend: Annotated[bool | None, Meta(description="While true, no replica runs.")] = None
    managedBy: Annotated[
        Annotated[str, Meta(max_length=63)] | None,
        Meta(
            description="The controller of the job. This operator serves jobs with trainyard.dev/operator or no value."
        ),
    ] = None


def policy_of(spec: Json) -> Policy:
    """The policies of a spec. A malformed field counts as unset: validation against the schema reports it."""
    clean = spec.get("cleanPodPolicy")
    managed_by = spec.get("managedBy")
    return Policy(
        clean_pod_policy=clean if clean in ("None", "Running", "All") else "",
        ttl_seconds_after_finished=_non_negative_integer(spec.get("ttlSecondsAfterFinished")),
        active_deadline_seconds=_non_negative_integer(spec.get("activeDeadlineSeconds")),
        backoff_limit=_non_negative_integer(spec.get("backoffLimit")),
        suspend=spec.get("suspend") is True,
        managed_by=managed_by if isinstance(managed_by, str) else "",
    )


def _non_negative_integer(value: Any) -> int | None:
    number = whole_number(value)
    return number if number is not None and number >= 0 else None
