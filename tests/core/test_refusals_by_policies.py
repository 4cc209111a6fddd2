"""A refusal by a policy of the cluster is distinguished from an invalid object."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.core.refusals import refusing_policy
from trainyard.objects import Json

REQUESTS = "spec.containers[0].resources.requests"
TOO_MUCH = 'Invalid value: "2": must be less than or equal to cpu limit of 1'


def pod(**resources: Any) -> Json:
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}


def cause(field: str, message: str = "Invalid value", reason: str = "FieldValueInvalid") -> Json:
    return {"reason": reason, "message": message, "field": field}


POLICY = "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
CASES = [
    pytest.param(422, POLICY, [{"message": POLICY}], pod(), "AdmissionPolicy", id="an admission policy"),
    pytest.param(403, POLICY, None, pod(), "AdmissionPolicy", id="one with the reason Forbidden"),
    pytest.param(
        400, 'admission webhook "w" denied the request', None, pod(), "AdmissionWebhook", id="a webhook's 400"
    ),
    pytest.param(
        422, 'admission webhook "w" denied the request', None, pod(), "AdmissionWebhook", id="a webhook's 422"
    ),
    pytest.param(422, "denied", [{"message": "no field"}], pod(), "AdmissionPolicy", id="a cause without a field"),
    pytest.param(403, "exceeded quota: small", None, pod(), "QuotaExceeded", id="a quota"),
    pytest.param(403, "maximum cpu usage per Container is 1", None, pod(), "LimitRange", id="a LimitRange's maximum"),
    pytest.param(
        422, "x", [cause(REQUESTS, TOO_MUCH)], pod(requests={"cpu": "2"}), "LimitRange", id="a LimitRange's default"
    ),
    pytest.param(
        422,
        "x",
        [cause(REQUESTS, TOO_MUCH)],
        pod(requests={"cpu": 2}, limits={"cpu": 1}),
        "",
        id="limits of the user's",
    ),
    pytest.param(422, "x", [cause("spec.containers[1].image")], pod(), "AdmissionWebhook", id="an injected container"),
    pytest.param(422, "x", [cause("spec.containers[0].image")], pod(), "", id="a field that was sent"),
    pytest.param(
        422, "x", [cause("spec.containers[0].command", reason="FieldValueRequired")], pod(), "", id="a required field"
    ),
    pytest.param(
        422, "x", [cause("spec.containers[0].image"), cause("spec.containers[1].image")], pod(), "", id="both at once"
    ),
    pytest.param(422, "x", None, pod(), "", id="no causes"),
    pytest.param(422, "x", [cause("spec..[x]")], pod(), "", id="an odd path"),
    pytest.param(409, "exceeded quota", None, pod(), "", id="a conflict"),
]


@pytest.mark.parametrize(("code", "message", "causes", "sent", "policy"), CASES)
def test_a_policys_refusal_is_recognized_by_the_sent_object(
    code: int, message: str, causes: object, sent: Json, policy: str
) -> None:
    assert refusing_policy(code, message, causes, sent) == policy
