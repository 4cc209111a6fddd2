"""Built-in resources of Kubernetes that this server does not serve, each with an alternative.

Requests for them get 404, as for any unknown resource, so a client that probes for them sees that they are missing. The
message names the alternative because kubectl has commands for some (`create cronjob`, `create quota`) and prints it.
"""

from __future__ import annotations

from trainyard.server.model.errors import StatusError

_NO_QUOTA = "one person uses this machine; resources.limits of a pod bound what it takes"
ALTERNATIVES = {
    ("batch", "cronjobs"): "let cron or a timer of this machine run `kubectl create job` or `kubectl create -f`",
    ("", "resourcequotas"): _NO_QUOTA,
    ("", "limitranges"): _NO_QUOTA,
    ("", "replicationcontrollers"): "create a Deployment",
    ("apps", "daemonsets"): "create a Deployment with one replica, there is one node",
    ("apps", "controllerrevisions"): "a StatefulSet keeps no history here, so apply the manifest that it had before",
    (
        "autoscaling",
        "horizontalpodautoscalers",
    ): "no autoscaler runs here, so set the number with `kubectl scale`",
    (
        "policy",
        "poddisruptionbudgets",
    ): "evictions are not limited here; `kubectl drain` stops the pods of the one node",
    ("networking.k8s.io", "ingresses"): "reach a Service with `kubectl proxy`",
    (
        "networking.k8s.io",
        "networkpolicies",
    ): "the network of the node decides which connections are possible: `trainyard up --network`",
    ("scheduling.k8s.io", "priorityclasses"): "all pods run on this machine, and none is preempted",
}


def not_served_error(group: str, plural: str) -> StatusError | None:
    """The 404 for a built-in resource of Kubernetes that this server lacks; None for any other resource."""
    if (group, plural) not in ALTERNATIVES:
        return None
    qualified = f"{plural}.{group}" if group else plural
    return StatusError(404, "NotFound", f"{qualified} are not served here: {ALTERNATIVES[group, plural]}", {})
