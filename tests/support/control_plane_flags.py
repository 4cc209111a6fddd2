"""What each program of the control plane is started with, and what a test may want otherwise.

Rules:
- Everything listens on loopback and nothing is fsynced: the state is thrown away at the end.
- Limits on requests are off, so that what is measured is the client; `Options.inflight` brings real 429s back.
- Node lifecycle is off, because it taints every new node until a kubelet says that it is ready. `node_loss` turns it on
  with short times. Real eviction needs a second, healthy node: one lost node alone counts as a lost zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trainyard.objects import encode

NODE_LEASE_SECONDS = 8
STAGES = Path(__file__).with_name("control_plane_kwok.yaml")
AUDIT: Mapping[str, object] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@dataclass(frozen=True, slots=True)
class Options:
    """How this control plane differs from the usual one."""

    emulated: str = ""  # "1.34": behave as that minor version does
    inflight: int = 0  # with more requests than this at once, each for reading and writing, the answer is 429
    fairness: bool = False  # API priority and fairness: the limits are shared out by flow
    node_loss: bool = False  # nodes whose lease is not renewed are lost, and their pods evicted
    compaction: str = ""  # "5s": etcd forgets old revisions that fast, for a real 410
    go_gc_percent: int = 400  # GOGC: the API server takes a fifth less CPU than with Go's 100, and 1.1 GB
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)  # flags by program


MEASURED = Options(go_gc_percent=100)
"""For benchmarks: the programs collect garbage as they do in a cluster."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of one control plane find each other."""

    folder: Path
    etcd: int
    peers: int
    api: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.api}"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def audit(self) -> Path:
        return self.folder / "logs" / "audit.log"

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name.removeprefix('system:')}.kubeconfig"


def flags(places: Places, options: Options) -> dict[str, list[str]]:
    """By program, in the order of their start."""
    flags = {
        "etcd": _etcd(places),
        "kube-apiserver": _apiserver(places, options),
        "kube-controller-manager": _controllers(places, options),
        "kube-scheduler": _client(places, "kube-scheduler", options),
    }
    return {name: [*values, *options.more.get(name, ())] for name, values in flags.items()}


def node_flags(places: Places, name: str) -> list[str]:
    """KWOK as the kubelet of one node."""
    return [
        f"--kubeconfig={places.kubeconfig('kwok')}",
        f"--config={STAGES}",
        f"--manage-single-node={name}",
        f"--node-lease-duration-seconds={NODE_LEASE_SECONDS}",
        "--cidr=10.244.0.0/16",  # pods' addresses, off the range of services
        "--server-address=",
    ]


def write_policy(places: Places) -> None:
    (places.pki / "audit.json").write_bytes(encode(AUDIT))


def _etcd(places: Places) -> list[str]:
    client, peer = f"http://127.0.0.1:{places.etcd}", f"http://127.0.0.1:{places.peers}"
    return [
        f"--data-dir={places.folder / 'etcd'}",
        "--name=test",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--quota-backend-bytes=4294967296",
    ]


def _apiserver(places: Places, options: Options) -> list[str]:
    pki, limit = places.pki, options.inflight
    hint = [
        f"--etcd-servers=http://127.0.0.1:{places.etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={places.api}",
        "--external-hostname=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--authorization-mode=RBAC",
        "--allow-privileged",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'accounts.pub'}",
        f"--service-account-signing-key-file={pki / 'accounts.key'}",
        f"--audit-policy-file={pki / 'audit.json'}",
        f"--audit-log-path={places.audit}",
        "--audit-log-maxsize=4096",
        f"--enable-priority-and-fairness={str(options.fairness).lower()}",
        f"--max-requests-inflight={limit}",
        f"--max-mutating-requests-inflight={limit}",
    ]
    if not options.node_loss:
        hint.append("--disable-admission-plugins=TaintNodesByCondition")
    if options.compaction:
        hint.append(f"--etcd-compaction-interval={options.compaction}")
    return hint + _emulation(options)


def _controllers(places: Places, options: Options) -> list[str]:
    without = ["node-ipam-controller"] if options.node_loss else ["node-ipam-controller", "node-lifecycle-controller"]
    grace = ["--node-monitor-grace-period=8s", "--node-monitor-period=1s"] if options.node_loss else []
    return [
        *_client(places, "kube-controller-manager", options),
        f"--controllers=*,{','.join(f'-{name}' for name in without)}",
        f"--service-account-private-key-file={places.pki / 'accounts.key'}",
        f"--root-ca-file={places.pki / 'ca.crt'}",
        *grace,
    ]


def _client(places: Places, name: str, options: Options) -> list[str]:
    return [
        f"--kubeconfig={places.kubeconfig(name)}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        *_emulation(options),
    ]


def _emulation(options: Options) -> list[str]:
    return [f"--emulated-version={options.emulated}"] if options.emulated else []
