"""Types that every cluster has and this one has not, and what to do instead.

They are 404 as any unknown type is, so a program that looks whether they are there finds that they are not. But kubectl
makes some of them by words (`create cronjob`, `create quota`) and shows the message to a person.
"""

from __future__ import annotations

from trainyard.server.errors import Refused

_NO_BUDGET = "one person uses this machine; resources.limits of a pod bound what it takes"
INSTEAD = {
    ("batch", "cronjobs"): "let cron or a timer of this machine run `kubectl create job` or `kubectl create -f`",
    ("", "resourcequotas"): _NO_BUDGET,
    ("", "limitranges"): _NO_BUDGET,
    ("", "replicationcontrollers"): "create a Deployment",
    ("apps", "daemonsets"): "create a Deployment with one replica, there is one node",
    ("apps", "controllerrevisions"): "a StatefulSet keeps no history here, so apply the manifest that it had before",
    ("autoscaling", "horizontalpodautoscalers"): "nobody measures load here, so set the number with `kubectl scale`",
    ("policy", "poddisruptionbudgets"): "evictions ask nobody here; `kubectl drain` stops the pods of the one node",
    ("networking.k8s.io", "ingresses"): "reach a Service with `kubectl proxy`",
    ("networking.k8s.io", "networkpolicies"): "the node's network decides who reaches whom: `trainyard up --network`",
    ("scheduling.k8s.io", "priorityclasses"): "all pods run on this machine, and none makes room for another",
}


def refusal(group: str, plural: str) -> Refused | None:
    """What is said of a type that is well known and not here."""
    if (group, plural) not in INSTEAD:
        return None
    qualified = f"{plural}.{group}" if group else plural
    return Refused(404, "NotFound", f"{qualified} are not served here: {INSTEAD[group, plural]}", {})
