"""What an API server of 1.37 refuses in the container restart rules of a pod."""

from __future__ import annotations

import pytest

from trainyard.api_types.pod_rules import pod_spec_problems
from trainyard.objects import Json

CODES = {"operator": "In", "values": [42]}
RULE = {"action": "Restart", "exitCodes": CODES}
NOT_IN, MANY = {"operator": "NotIn", "values": []}, {"operator": "Is", "values": [0] * 256}
WHERE = "spec.containers[0]"
ROWS: list[tuple[Json, list[str]]] = [
    ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, []),
    ({"restartPolicy": "Always", "restartPolicyRules": [{**RULE, "action": "RestartAllContainers"}]}, []),
    ({"restartPolicy": "Never", "restartPolicyRules": [{**RULE, "exitCodes": NOT_IN}]}, []),
    ({"restartPolicy": "OnFailure", "restartPolicyRules": [RULE] * 20}, []),
    ({"restartPolicyRules": [RULE]}, [f"{WHERE}.restartPolicy"]),
    ({"restartPolicy": "Never", "restartPolicyRules": [RULE] * 21}, [f"{WHERE}.restartPolicyRules"]),
    (
        {"restartPolicy": "Never", "restartPolicyRules": [RULE, {"action": "Stop", "exitCodes": CODES}]},
        [f"{WHERE}.restartPolicyRules[1].action"],
    ),
    (
        {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]},
        [f"{WHERE}.restartPolicyRules[0].exitCodes"],
    ),
    (
        {"restartPolicy": "Never", "restartPolicyRules": [{**RULE, "exitCodes": MANY}]},
        [f"{WHERE}.restartPolicyRules[0].exitCodes.operator", f"{WHERE}.restartPolicyRules[0].exitCodes.values"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "paths"), ROWS)
def test_container_restart_rules(fields: Json, paths: list[str]) -> None:
    container = {"name": "main", "image": "x", "terminationMessagePolicy": "File", **fields}
    problems = pod_spec_problems({"containers": [container], "restartPolicy": "Never"}, "spec")
    assert [problem.path for problem in problems if "restartPolicy" in problem.path] == paths
