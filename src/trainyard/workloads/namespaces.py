"""The objects of every namespace: the ServiceAccount `default` (serviceaccount controller) and the ConfigMap
`kube-root-ca.crt` with the cluster's CA (root-ca-certificate-publisher).

Both are created again after a deletion, and the data of the ConfigMap are restored after a change. Nothing is created
in a namespace that is being deleted. Without a CA (the API server has no TLS) there is no ConfigMap.
"""

from __future__ import annotations

from trainyard.objects import Json, is_deleting, name_of
from trainyard.objects.resources import CONFIG_MAP, SERVICE_ACCOUNT
from trainyard.objects.writes import Patch
from trainyard.workloads.writes import CreateIfAbsent, Decision, Write

DEFAULT_SERVICE_ACCOUNT, ROOT_CA_CONFIG_MAP, CA_KEY = "default", "kube-root-ca.crt", "ca.crt"
DEFAULT_OBJECTS = {SERVICE_ACCOUNT: DEFAULT_SERVICE_ACCOUNT, CONFIG_MAP: ROOT_CA_CONFIG_MAP}


def decide(namespace: Json, service_account: Json | None, config_map: Json | None, root_ca: str) -> Decision:
    """The writes for one namespace. `service_account` and `config_map` are its default ones, None
    where they do not exist; `root_ca` is the CA in PEM, "" for none."""
    if is_deleting(namespace):
        return Decision()
    namespace_name = name_of(namespace)
    writes: list[Write] = []
    if service_account is None:
        meta: Json = {"name": DEFAULT_SERVICE_ACCOUNT, "namespace": namespace_name}
        writes.append(CreateIfAbsent(SERVICE_ACCOUNT, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}))
    if root_ca and config_map is None:
        annotations = {"kubernetes.io/description": "The CA by which pods check the API server's certificate."}
        meta = {"name": ROOT_CA_CONFIG_MAP, "namespace": namespace_name, "annotations": annotations}
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {CA_KEY: root_ca}}
        writes.append(CreateIfAbsent(CONFIG_MAP, obj))
    elif (
        root_ca
        and config_map is not None
        and not is_deleting(config_map)
        and config_map.get("data") != {CA_KEY: root_ca}
    ):
        removed_keys = dict.fromkeys((config_map.get("data") or {}).keys() - {CA_KEY})  # null removes a key
        writes.append(
            Patch(CONFIG_MAP, namespace_name, ROOT_CA_CONFIG_MAP, {"data": {**removed_keys, CA_KEY: root_ca}})
        )
    return Decision(tuple(writes))
