"""The Kubernetes resources that Trainyard reads or writes; the job kinds are in the package `kinds`."""

from __future__ import annotations

from trainyard.objects.meta import GVK

CONFIG_MAP = GVK("", "v1", "ConfigMap", "configmaps")
EVENT = GVK("", "v1", "Event", "events")
NAMESPACE = GVK("", "v1", "Namespace", "namespaces")
NODE = GVK("", "v1", "Node", "nodes")
PERSISTENT_VOLUME_CLAIM = GVK("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
POD = GVK("", "v1", "Pod", "pods")
SECRET = GVK("", "v1", "Secret", "secrets")
SERVICE = GVK("", "v1", "Service", "services")
SERVICE_ACCOUNT = GVK("", "v1", "ServiceAccount", "serviceaccounts")

DEPLOYMENT = GVK("apps", "v1", "Deployment", "deployments")
REPLICA_SET = GVK("apps", "v1", "ReplicaSet", "replicasets")
STATEFUL_SET = GVK("apps", "v1", "StatefulSet", "statefulsets")
JOB = GVK("batch", "v1", "Job", "jobs")

HORIZONTAL_POD_AUTOSCALER = GVK("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")

CRD = GVK("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
NATIVE_POD_GROUP = GVK("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups")
"""Of Kubernetes itself; Volcano and scheduler-plugins have resources of that name, too."""
ENDPOINT_SLICE = GVK("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
LEASE = GVK("coordination.k8s.io", "v1", "Lease", "leases")
ROLE = GVK("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = GVK("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
VALIDATING_WEBHOOK_CONFIGURATION = GVK(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"
)
SERVICE_CIDR = GVK("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs")
