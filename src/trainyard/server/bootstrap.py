"""What a cluster has before anybody asks for it: namespaces, the Service `kubernetes`, and the usual roles.

Of the real server's many roles only those are here that others rely on: the four a person binds to, and what every
user who has shown who he is may do (discovery, questions about himself).
"""

from __future__ import annotations

from trainyard.objects import Json
from trainyard.server.access import GROUP
from trainyard.server.users import AUTHENTICATED, MASTERS, UNAUTHENTICATED

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
SERVICE_ADDRESS = "10.96.0.1"

OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version", "/version/")
"""What anybody may ask: they say that the cluster lives, and how old it is."""
AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
"""An annotation: whether a role or binding of ours is renewed at a start (furnishing.py)."""

_READ, _WRITE = ["get", "list", "watch"], ["create", "delete", "deletecollection", "patch", "update"]
_CORE = ["configmaps", "endpoints", "persistentvolumeclaims", "pods", "serviceaccounts", "services"]
_READ_ONLY = ["events", "namespaces", "pods/log", "pods/status", "services/status", "persistentvolumeclaims/status"]
_APPS = ["deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets", "statefulsets/scale"]
_PATHS = ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz"]


def objects() -> list[tuple[str, Json]]:
    """Each with the path to post it to, in order."""
    found = [("/api/v1/namespaces", _object("v1", "Namespace", name)) for name in NAMESPACES]
    found.append(("/api/v1/namespaces/default/services", _service()))
    for name, rules in _roles().items():
        found.append((f"/apis/{GROUP}/v1/clusterroles", _rbac("ClusterRole", name, rules=rules)))
    for name, *groups in (
        ("cluster-admin", MASTERS),
        ("system:basic-user", AUTHENTICATED),
        ("system:discovery", AUTHENTICATED),
        ("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
    ):
        role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        subjects = [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups]
        binding = _rbac("ClusterRoleBinding", name, roleRef=role, subjects=subjects)
        found.append((f"/apis/{GROUP}/v1/clusterrolebindings", binding))
    return found


def _roles() -> dict[str, list[Json]]:
    view = [
        _rule([""], [*_CORE, *_READ_ONLY], _READ),
        _rule(["apps"], _APPS, _READ),
        _rule(["batch"], ["jobs", "jobs/status"], _READ),
        _rule(["discovery.k8s.io"], ["endpointslices"], _READ),
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
    ]
    questions = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]
    return {
        "cluster-admin": [_rule(["*"], ["*"], ["*"]), {"verbs": ["*"], "nonResourceURLs": ["*"]}],
        "admin": [*edit, _rule([GROUP], ["roles", "rolebindings"], [*_READ, *_WRITE])],
        "edit": edit,
        "view": view,
        "system:basic-user": [
            _rule(["authorization.k8s.io"], questions, ["create"]),
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


def _rbac(kind: str, name: str, **more: object) -> Json:
    made = _object(f"{GROUP}/v1", kind, name)
    made["metadata"]["labels"] = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    made["metadata"]["annotations"] = {AUTOUPDATE: "true"}
    return {**made, **more}


def _object(api_version: str, kind: str, name: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}
