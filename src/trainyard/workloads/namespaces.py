"""The objects of every namespace: the ServiceAccount `default` (serviceaccount controller) and the ConfigMap
`kube-root-ca.crt` with the cluster's CA (root-ca-certificate-publisher).

Both are created again after a deletion, and the data of the ConfigMap are restored after a change. Nothing is created
in a namespace that is being deleted. Without a CA (the API server has no TLS) there is no ConfigMap.
"""

from __future__ import annotations

from trainyard.objects import Json, name_of
from trainyard.objects.resources import CONFIG_MAP, SERVICE_ACCOUNT
from trainyard.workloads.pods import deleting
from trainyard.workloads.writes import Decision, Ensure, Merge, Write

ACCOUNT, ROOT_CA, KEY = "default", "kube-root-ca.crt", "ca.crt"
NAMES = {SERVICE_ACCOUNT: ACCOUNT, CONFIG_MAP: ROOT_CA}


def decide(namespace: Json, account: Json | None, root: Json | None, root_ca: str) -> Decision:
    """The writes for one namespace. `account` and `root` are its ServiceAccount and ConfigMap of these names, None
    where they do not exist; `root_ca` is the CA in PEM, "" for none."""
    if deleting(namespace):
        return Decision()
    namespace_name = name_of(namespace)
    writes: list[Write] = []
    if account is None:
        meta: Json = {"name": ACCOUNT, "namespace": namespace_name}
        writes.append(Ensure(SERVICE_ACCOUNT, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}))
    if root_ca and root is None:
        annotations = {"kubernetes.io/description": "The CA by which pods check the API server's certificate."}
        meta = {"name": ROOT_CA, "namespace": namespace_name, "annotations": annotations}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {KEY: root_ca}}
        writes.append(Ensure(CONFIG_MAP, config_map))
    elif root_ca and root is not None and not deleting(root) and root.get("data") != {KEY: root_ca}:
        removed_keys = dict.fromkeys((root.get("data") or {}).keys() - {KEY})  # null removes a key
        writes.append(Merge(CONFIG_MAP, namespace_name, ROOT_CA, {"data": {**removed_keys, KEY: root_ca}}))
    return Decision(tuple(writes))
