"""The configuration of a real node: what its programs are started with, and the objects of its cluster.

Rules:
- Nothing leaves the node's network namespace: there is no route out of it, and no image is pulled.
- Pods have routed links (the CNI plugin `ptp`), no bridge: the kernel needs no br_netfilter for Services.
- The kubelet is asked and asks as in a cluster: the Node authorizer, NodeRestriction, webhooks of the API server.
- The node is ready as soon as it can be; it counts as lost after 40 seconds without a lease, as in a cluster.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.control_plane_flags import Options, Places
from tests.support.real_node_build import PAUSE_IMAGE
from trainyard.objects import Json, encode

NAME, ADDRESS = "node-1", "10.200.0.2"
DNS, DNS_HEALTH, PROXY_HEALTH = "10.0.0.10", 8181, 10256
PODS = "10.244.0.0/24"
DOMAIN = "cluster.local"
KUBELET, PROXY, COREDNS = f"system:node:{NAME}", "system:kube-proxy", "coredns"

OPTIONS = Options(
    node_loss=True,
    more={
        "kube-apiserver": [
            "--bind-address=0.0.0.0",
            f"--advertise-address={ADDRESS}",
            "--endpoint-reconciler-type=lease",
            "--kubelet-preferred-address-types=InternalIP",
            "--authorization-mode=Node",  # beside RBAC
            "--enable-admission-plugins=NodeRestriction",
        ],
        "kube-controller-manager": ["--node-monitor-grace-period=40s"],
    },
)


SOCKET = "/run/containerd/containerd.sock"  # within: the path of a socket must be short


def commands(places: Places, programs: Path) -> dict[str, list[str]]:
    """By program, its flags. Writes the files that they name. `programs`: the folder with the CNI plugins."""
    folder = places.folder / "node"
    (folder / "cni").mkdir(parents=True, exist_ok=True)
    (folder / "containerd.toml").write_text(_containerd(places, programs, folder / "cni"))
    (folder / "cni" / "10-pods.conflist").write_bytes(encode(CNI))
    (folder / "resolv.conf").write_text("")  # of the node: it knows no other name server
    (folder / "kubelet.json").write_bytes(encode(_kubelet(places, folder / "resolv.conf")))
    (folder / "kube-proxy.json").write_bytes(encode(_kube_proxy(places)))
    (folder / "Corefile").write_text(_corefile(places))
    return {
        "containerd": [f"--config={folder / 'containerd.toml'}", "--log-level=info"],
        "kubelet": [
            f"--config={folder / 'kubelet.json'}",
            f"--kubeconfig={places.kubeconfig(KUBELET)}",
            f"--hostname-override={NAME}",
            f"--node-ip={ADDRESS}",
        ],
        "kube-proxy": [f"--config={folder / 'kube-proxy.json'}"],
        "coredns": [f"-conf={folder / 'Corefile'}"],
    }


CNI: Json = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "ptp",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}


def _containerd(places: Places, programs: Path, cni: Path) -> str:
    return f"""version = 3
[grpc]
  address = '{SOCKET}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true  # a container of this machine may not lower it
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{programs}']
    conf_dir = '{cni}'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE_IMAGE}'
"""


def _kubelet(places: Places, resolver: Path) -> Json:
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "address": ADDRESS,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": False,
        "failSwapOn": False,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(places.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDomain": DOMAIN,
        "clusterDNS": [DNS],
        "resolvConf": str(resolver),
        "podCIDR": PODS,
        "volumePluginDir": str(resolver.parent / "volume-plugins"),
        "nodeStatusUpdateFrequency": "2s",
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,  # no image could be pulled again
    }


def _kube_proxy(places: Places) -> Json:
    keep = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(places.kubeconfig(PROXY))},
        "hostnameOverride": NAME,
        "clusterCIDR": PODS,
        "conntrack": keep,  # the limits are the machine's
        "healthzBindAddress": f"{ADDRESS}:{PROXY_HEALTH}",
    }


def _corefile(places: Places) -> str:
    """As kubeadm's, which caches no answer about the cluster."""
    return f""".:53 {{
  bind {ADDRESS}
  errors
  ready {ADDRESS}:{DNS_HEALTH}
  kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
    kubeconfig {places.kubeconfig(COREDNS)}
    pods insecure
    ttl 30
  }}
  cache 30 {{
    disable success {DOMAIN}
    disable denial {DOMAIN}
  }}
}}
"""


def objects() -> list[Json]:
    """The Service of the DNS, which is a process of the node, and the API server's rights on the kubelet."""
    rbac = "rbac.authorization.k8s.io"
    ports = {"dns": "UDP", "dns-tcp": "TCP"}
    service = {"name": "kube-dns", "namespace": "kube-system"}
    labels = {"kubernetes.io/service-name": service["name"]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": service,
            "spec": {
                "clusterIP": DNS,
                "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in ports.items()],
            },
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**service, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in ports.items()],
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kube-apiserver-kubelet-client"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "kube-apiserver-kubelet-client"}],
        },
    ]
