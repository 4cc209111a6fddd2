"""The initial objects of a cluster: namespaces, the Service `kubernetes`, and the default RBAC roles and bindings.

Of kube-apiserver's default roles only those exist that clients rely on: the four user-facing ones (cluster-admin,
admin, edit, view), and the permissions of every authenticated user (discovery, self-subject reviews).
"""

from __future__ import annotations

from trainyard.objects import Json
from trainyard.server.auth.authorization import GROUP
from trainyard.server.model.paths import OPEN_PATHS
from trainyard.server.model.users import AUTHENTICATED, MASTERS, UNAUTHENTICATED

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
SERVICE_ADDRESS = "10.96.0.1"
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
"""An annotation: whether a default role or binding is reconciled at each start (bootstrap.py)."""

_READ, _WRITE = ["get", "list", "watch"], ["create", "delete", "deletecollection", "patch", "update"]
_CORE = ["configmaps", "endpoints", "persistentvolumeclaims", "pods", "serviceaccounts", "services"]
_READ_ONLY = ["events", "namespaces", "pods/log", "pods/status", "services/status", "persistentvolumeclaims/status"]
_APPS = ["deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale"]
_PATHS = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"]


def objects() -> list[tuple[str, Json]]:
    """The initial objects in creation order: (path to POST to, object)."""
    posts = [("/api/v1/namespaces", _object("v1", "Namespace", name)) for name in NAMESPACES]
    posts.append(("/api/v1/namespaces/default/services", _service()))
    for name, rules in _roles().items():
        posts.append((f"/apis/{GROUP}/v1/clusterroles", _rbac("ClusterRole", name, rules=rules)))
    for name, *groups in (
        ("cluster-admin", MASTERS),
        ("system:basic-user", AUTHENTICATED),
        ("system:discovery", AUTHENTICATED),
        ("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
    ):
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        subjects = [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups]
        binding = _rbac("ClusterRoleBinding", name, roleRef=role, subjects=subjects)
        posts.append((f"/apis/{GROUP}/v1/clusterrolebindings", binding))
    return posts


def _roles() -> dict[str, list[Json]]:
    view = [
        _rule([""], [*_CORE, *_READ_ONLY], _READ),
        _rule(["apps"], _APPS, _READ),
        _rule(["batch"], ["jobs", "jobs/status"], _READ),
        _rule(["discovery.k8s.io"], ["endpointslices"], _READ),
        _rule(["metrics.k8s.io"], ["nodes", "pods"], _READ),
        _rule(["scheduling.k8s.io"], ["podgroups", "podgroups/status"], _READ),
    ]
    edit = [
        *view,
        _rule([""], [*_CORE, "events"], _WRITE),
        _rule([""], ["secrets"], [*_READ, *_WRITE]),
        _rule([""], ["pods/attach", "pods/exec", "pods/proxy", "services/proxy"], [*_READ, *_WRITE]),
        _rule([""], ["serviceaccounts/token"], ["create"]),
        _rule(["apps"], _APPS, _WRITE),
        _rule(["batch"], ["jobs"], _WRITE),
        _rule(["coordination.k8s.io"], ["leases"], [*_READ, *_WRITE]),
        _rule(["scheduling.k8s.io"], ["podgroups"], _WRITE),
    ]
    self_reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    return {
        "cluster-admin": [_rule(["*"], ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "admin": [*edit, _rule([GROUP], ["roles", "rolebindings"], [*_READ, *_WRITE])],
        "edit": edit,
        "view": view,
        "system:basic-user": [
            _rule(["authorization.k8s.io"], self_reviews, ["create"]),
            _rule(["authentication.k8s.io"], ["selfsubjectreviews"], ["create"]),
        ],
        "system:discovery": [{"verbs": ["get"], "nonResourceURLs": [*_PATHS, "/version", "/version/"]}],
        "system:public-info-viewer": [{"verbs": ["get"], "nonResourceURLs": list(OPEN_PATHS)}],
    }


def _rule(groups: list[str], resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": groups, "resources": resources, "verbs": verbs}


def _service() -> Json:
    """How pods call the API server. The node forwards it: there are no pods behind it."""
    service = _object("v1", "Service", "kubernetes")
    service["metadata"]["labels"] = {"component": "apiserver", "provider": "kubernetes"}
    port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}
    service["spec"] = {"clusterIP": SERVICE_ADDRESS, "ports": [port]}
    return service


def _rbac(kind: str, name: str, **fields: object) -> Json:
    obj = _object(f"{GROUP}/v1", kind, name)
    obj["metadata"]["labels"] = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    obj["metadata"]["annotations"] = {AUTOUPDATE: "true"}
    return {**obj, **fields}


def _object(api_version: str, kind: str, name: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
