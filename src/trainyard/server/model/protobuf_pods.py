"""Protobuf messages for `kubectl create job`, `create deployment`, `create service` and `expose`.

Field tables in the format of protobuf.py. Other fields (probes, volumes) are never sent by these commands; they are
refused.
"""

from __future__ import annotations

TEXT, NUMBER, BOOLEAN, IGNORED = "text", "number", "boolean", "ignored"
COUNT, FLAG = "count", "flag"
"""A number and a boolean that Go encodes even when they are unset: 0 and false are left out."""
QUANTITY, EITHER = "quantity", "either"
"""A string in a nested message; an integer or a string (IntOrString)."""

_META = (1, "metadata", "ObjectMeta")

TABLE: dict[str, tuple[tuple[int, str, str], ...]] = {
    "Job": (_META, (2, "spec", "JobSpec"), (3, "status", IGNORED)),
    "JobSpec": (
        (1, "parallelism", NUMBER),
        (2, "completions", NUMBER),
        (3, "activeDeadlineSeconds", NUMBER),
        (4, "selector", "LabelSelector"),
        (5, "manualSelector", BOOLEAN),
        (6, "template", "PodTemplateSpec"),
        (7, "backoffLimit", NUMBER),
        (8, "ttlSecondsAfterFinished", NUMBER),
        (9, "completionMode", TEXT),
        (10, "suspend", BOOLEAN),
    ),
    "Deployment": (_META, (2, "spec", "DeploymentSpec"), (3, "status", IGNORED)),
    "DeploymentSpec": (
        (1, "replicas", NUMBER),
        (2, "selector", "LabelSelector"),
        (3, "template", "PodTemplateSpec"),
        (4, "strategy", "DeploymentStrategy"),
        (5, "minReadySeconds", COUNT),
        (6, "revisionHistoryLimit", NUMBER),
        (7, "paused", FLAG),
        (9, "progressDeadlineSeconds", NUMBER),
    ),
    "DeploymentStrategy": ((1, "type", TEXT), (2, "rollingUpdate", "RollingUpdateDeployment")),
    "RollingUpdateDeployment": ((1, "maxUnavailable", EITHER), (2, "maxSurge", EITHER)),
    "LabelSelector": ((1, "matchLabels", "{text}"), (2, "matchExpressions", "[LabelSelectorRequirement]")),
    "LabelSelectorRequirement": ((1, "key", TEXT), (2, "operator", TEXT), (3, "values", "[text]")),
    "PodTemplateSpec": (_META, (2, "spec", "PodSpec")),
    "PodSpec": (
        (2, "containers", "[Container]"),
        (3, "restartPolicy", TEXT),
        (4, "terminationGracePeriodSeconds", NUMBER),
        (5, "activeDeadlineSeconds", NUMBER),
        (6, "dnsPolicy", TEXT),
        (7, "nodeSelector", "{text}"),
        (8, "serviceAccountName", TEXT),
        (9, "serviceAccount", TEXT),
        (10, "nodeName", TEXT),
        (11, "hostNetwork", FLAG),
        (12, "hostPID", FLAG),
        (13, "hostIPC", FLAG),
        (15, "imagePullSecrets", "[LocalObjectReference]"),
        (16, "hostname", TEXT),
        (17, "subdomain", TEXT),
        (19, "schedulerName", TEXT),
        (20, "initContainers", "[Container]"),
        (24, "priorityClassName", TEXT),
    ),
    "Container": (
        (1, "name", TEXT),
        (2, "image", TEXT),
        (3, "command", "[text]"),
        (4, "args", "[text]"),
        (5, "workingDir", TEXT),
        (6, "ports", "[ContainerPort]"),
        (7, "env", "[EnvVar]"),
        (8, "resources", "ResourceRequirements"),
        (13, "terminationMessagePath", TEXT),
        (14, "imagePullPolicy", TEXT),
        (16, "stdin", FLAG),
        (17, "stdinOnce", FLAG),
        (18, "tty", FLAG),
        (20, "terminationMessagePolicy", TEXT),
    ),
    "ContainerPort": (
        (1, "name", TEXT),
        (2, "hostPort", COUNT),
        (3, "containerPort", NUMBER),
        (4, "protocol", TEXT),
        (5, "hostIP", TEXT),
    ),
    "EnvVar": ((1, "name", TEXT), (2, "value", TEXT)),
    "ResourceRequirements": ((1, "limits", "{quantity}"), (2, "requests", "{quantity}")),
    "Service": (_META, (2, "spec", "ServiceSpec"), (3, "status", IGNORED)),
    "ServiceSpec": (
        (1, "ports", "[ServicePort]"),
        (2, "selector", "{text}"),
        (3, "clusterIP", TEXT),
        (4, "type", TEXT),
        (5, "externalIPs", "[text]"),
        (7, "sessionAffinity", TEXT),
        (8, "loadBalancerIP", TEXT),
        (9, "loadBalancerSourceRanges", "[text]"),
        (10, "externalName", TEXT),
        (11, "externalTrafficPolicy", TEXT),
        (12, "healthCheckNodePort", COUNT),
        (13, "publishNotReadyAddresses", FLAG),
        (17, "ipFamilyPolicy", TEXT),
        (18, "clusterIPs", "[text]"),
        (19, "ipFamilies", "[text]"),
        (20, "allocateLoadBalancerNodePorts", BOOLEAN),
        (21, "loadBalancerClass", TEXT),
        (22, "internalTrafficPolicy", TEXT),
        (23, "trafficDistribution", TEXT),
    ),
    "ServicePort": (
        (1, "name", TEXT),
        (2, "protocol", TEXT),
        (3, "port", NUMBER),
        (4, "targetPort", EITHER),
        (5, "nodePort", COUNT),
        (6, "appProtocol", TEXT),
    ),
}
