"""What every namespace has: the ServiceAccount `default`, and the ConfigMap `kube-root-ca.crt` with the cluster's CA.

Both come back when they are deleted; the ConfigMap's content is put right when somebody changes it. A namespace that is
on its way out gets nothing any more. Without a CA (the cluster serves no TLS) there is no ConfigMap.
"""

from __future__ import annotations

from trainyard.objects import Json, name_of
from trainyard.objects.resources import CONFIG_MAP, SERVICE_ACCOUNT
from trainyard.workloads.pods import deleting
from trainyard.workloads.writes import Decision, Ensure, Merge, Write

ACCOUNT, ROOT_CA, KEY = "default", "kube-root-ca.crt", "ca.crt"
NAMES = {SERVICE_ACCOUNT: ACCOUNT, CONFIG_MAP: ROOT_CA}


def decide(namespace: Json, account: Json | None, root: Json | None, root_ca: str) -> Decision:
    """`account` and `root` are what is there under the two names."""
    if deleting(namespace):
        return Decision()
    where = name_of(namespace)
    writes: list[Write] = []
    if account is None:
        meta: Json = {"name": ACCOUNT, "namespace": where}
        writes.append(Ensure(SERVICE_ACCOUNT, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}))
    if root_ca and root is None:
        note = {"kubernetes.io/description": "The CA by which pods check the API server's certificate."}
        meta = {"name": ROOT_CA, "namespace": where, "annotations": note}
        words = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
        writes.append(Ensure(CONFIG_MAP, {**words, "data": {KEY: root_ca}}))
    elif root_ca and root is not None and not deleting(root) and root.get("data") != {KEY: root_ca}:
        others = dict.fromkeys((root.get("data") or {}).keys() - {KEY})
        writes.append(Merge(CONFIG_MAP, where, ROOT_CA, {"data": {**others, KEY: root_ca}}))
    return Decision(tuple(writes))
