"""The PodMetrics of metrics.k8s.io, and a sentence for what is missing: on a cluster metrics-server serves them."""

from __future__ import annotations

from trainyard.client import ApiClient, Forbidden, NotFound, Unavailable
from trainyard.objects import GVK, Json

POD_METRICS = GVK("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")


async def read_pod_metrics(api: ApiClient, namespace: str, labels: str) -> tuple[list[Json], str]:
    """The PodMetrics of a namespace ("": of all), and why there are none. Raises Unavailable when no API server
    answers."""
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    try:
        return list((await api.list(POD_METRICS, namespace, labels)).get("items") or []), ""
    except NotFound:
        return [], "no CPU and memory: this cluster does not serve metrics.k8s.io; install metrics-server in it"
    except Forbidden:
        rule = "apiGroups: [metrics.k8s.io], resources: [pods], verbs: [list]"
        return [], f"no CPU and memory: you may not list pods of metrics.k8s.io {where}; ask for a Role with {rule}"
    except Unavailable as error:
        if not error.code:
            raise
        return [], f"no CPU and memory: metrics.k8s.io cannot answer now ({error.message}); see its metrics-server"
