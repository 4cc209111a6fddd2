"""When a kubelet restarts a container that has ended: the container's `restartPolicyRules`, then its own restartPolicy,
then the pod's (Kubernetes 1.37). The operator and the node both use it, so that they cannot disagree.

Rules:
- The first rule that matches the exit code decides; without one the container's restartPolicy, without that the pod's.
- An init container with restartPolicy Always is a native sidecar: it runs beside the containers and is always
  restarted. Any other init container that has exited with 0 has done its work and is not restarted by a policy.
- `RestartAllContainers` restarts every container of the pod, whichever container exits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

RESTARTING_ALL_CONTAINERS = "RestartingAllContainers"
"""The reason in the status of a container that RestartAllContainers has removed; its true exit code is gone."""

RestartAction = Literal["", "Restart", "RestartAllContainers"]
"""What follows an exit: nothing, this container is restarted, all containers of the pod are."""


class RestartRule(msgspec.Struct, frozen=True):
    """One entry of `restartPolicyRules`. It matches an exit code that is (In) or is not (NotIn) one of `codes`."""

    action: Literal["Restart", "RestartAllContainers"]
    codes: frozenset[int]
    negated: bool = False

    def matches(self, code: int) -> bool:
        """Whether the rule holds for the exit code."""
        return (code in self.codes) is not self.negated


class ContainerRestartPolicy(msgspec.Struct, frozen=True):
    """The restart rules of one container. `policy`: Always, OnFailure or Never, of the container or else of the pod;
    `sidecar`: a native sidecar."""

    policy: str
    rules: tuple[RestartRule, ...] = ()
    init: bool = False
    sidecar: bool = False

    def action(self, code: int) -> RestartAction:
        """What the kubelet does when the container exits with that code and its pod is not being stopped."""
        rule = next((rule for rule in self.rules if rule.matches(code)), None)
        if rule and rule.action == "RestartAllContainers":
            return rule.action
        if self.init and not self.sidecar and code == 0:
            return ""
        restarts = rule is not None or self.policy == "Always" or (self.policy == "OnFailure" and code != 0)
        return "Restart" if restarts else ""


def restart_policy(container: Mapping[str, object], pod_policy: str, *, init: bool) -> ContainerRestartPolicy:
    """The restart rules of a container of a pod's spec. Fields of a wrong type count as missing."""
    own, rules = container.get("restartPolicy"), container.get("restartPolicyRules")
    return ContainerRestartPolicy(
        own if isinstance(own, str) and own else pod_policy,
        tuple(rule for entry in rules if (rule := _rule(entry))) if isinstance(rules, list) else (),
        init,
        init and own == "Always",
    )


def _rule(entry: object) -> RestartRule | None:
    fields = entry if isinstance(entry, dict) else {}
    exit_codes = fields.get("exitCodes")
    if fields.get("action") not in ("Restart", "RestartAllContainers") or not isinstance(exit_codes, dict):
        return None
    values = exit_codes.get("values")
    codes = frozenset(code for code in values if isinstance(code, int)) if isinstance(values, list) else frozenset()
    return RestartRule(fields["action"], codes, exit_codes.get("operator") == "NotIn")
