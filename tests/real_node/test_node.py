"""The real node: pods run in containers, find each other, and nothing of it is left however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.control_plane_build import KUBERNETES
from tests.support.control_plane_process import ControlPlaneError
from tests.support.real_node import CGROUP, RealNode
from tests.support.real_node_build import CONTAINERD_VERSION, missing
from tests.support.real_node_enter import hierarchies
from tests.support.real_node_flags import NAME
from tests.support.real_node_sandbox import SETTINGS
from tests.support.repository import ROOT
from tests.support.waiting import SLOW_PAUSE, until
from trainyard.objects import Json, encode

pytestmark = [pytest.mark.node, pytest.mark.slow]

SERVER = ["python3", "-m", "http.server", "8080"]
READY = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
FETCH = """
import socket, sys, urllib.request
for url in sys.argv[1:]:
    print(url, urllib.request.urlopen(url, timeout=10).status)
print(socket.gethostbyname("kubernetes.default.svc.cluster.local"))
"""


def pod(name: str, command: list[str], **container: object) -> Json:
    """A pod with the label `app`: its name. It is reached as NAME.peers."""
    main = {"name": "main", "image": "python:3.11", "command": command, **container}
    spec = {"hostname": name, "subdomain": "peers", "terminationGracePeriodSeconds": 0, "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec}


def service(name: str, selector: dict[str, str], **spec: object) -> Json:
    ports = [{"port": 80, "targetPort": 8080}]
    spec = {"selector": selector, "ports": ports, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def create(node: RealNode, namespace: str, *items: Json) -> None:
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    node.kubectl("-n", namespace, "create", "-f", "-", stdin=encode(document).decode())


def test_the_node_has_the_pinned_versions(real_node: RealNode) -> None:
    _, node = real_node.ask("GET", f"/api/v1/nodes/{NAME}")
    info = node["status"]["nodeInfo"]
    assert info["kubeletVersion"] == f"v{KUBERNETES}"
    assert info["containerRuntimeVersion"] == f"containerd://{CONTAINERD_VERSION}"


def test_a_second_up_starts_nothing(real_node: RealNode) -> None:
    before = [(process.name, process.pid) for process in real_node.processes]
    assert real_node.up() is real_node
    assert [(process.name, process.pid) for process in real_node.processes] == before


def test_pods_find_services_and_each_other_by_name(real_node: RealNode, namespace: str) -> None:
    """By the address of a Service, also of the pod's own, and by the pod's name in a Service without an address."""
    web = pod("web", SERVER, readinessProbe=READY)
    services = [service("site", {"app": "web"}), service("peers", {"app": "web"}, clusterIP="None")]
    create(real_node, namespace, web, *services, pod("client", ["sleep", "1000"]))
    real_node.kubectl("-n", namespace, "wait", "pod", "--all", "--for=condition=Ready", "--timeout=60s")
    urls = ["http://site", "http://web.peers:8080"]
    for name in ("client", "web"):
        command = ["-n", namespace, "exec", name, "--", "python", "-c", FETCH, *urls]
        output = until(
            lambda command=command: real_node.kubectl(*command),
            "the Service is routed",
            retry_on=ControlPlaneError,
            pause=SLOW_PAUSE,
        )
        assert output.splitlines() == [*(f"{url} 200" for url in urls), "10.0.0.1"]


def test_the_end_of_a_container_is_told_with_its_code_and_its_log_stays(real_node: RealNode, namespace: str) -> None:
    failing = pod("failing", ["sh", "-c", "echo last words; exit 7"])
    failing["spec"]["restartPolicy"] = "Never"
    create(real_node, namespace, failing)
    real_node.kubectl("-n", namespace, "wait", "pod/failing", "--for=jsonpath={.status.phase}=Failed", "--timeout=60s")
    _, ended = real_node.ask("GET", f"/api/v1/namespaces/{namespace}/pods/failing")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert real_node.kubectl("-n", namespace, "logs", "failing") == "last words\n"


def test_nothing_is_left_of_a_node_that_was_killed(tmp_path: Path) -> None:
    """A pod runs when the owner is killed with SIGKILL. The machine's settings are as before."""
    if text := missing():
        pytest.skip(text)
    before = settings()
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.support.real_node"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        line = next(line for line in owner.stdout if "export KUBECONFIG=" in line)
        words = dict(word.split("=", 1) for word in line.split()[1:])
        kubectl = [f"{words['PATH'].split(':')[0]}/kubectl", f"--kubeconfig={words['KUBECONFIG']}"]
        sleeper = json.dumps(pod("sleeper", ["sleep", "1000"]))
        subprocess.run([*kubectl, "create", "-f", "-"], input=sleeper, text=True, check=True)
        subprocess.run([*kubectl, "wait", "pod/sleeper", "--for=condition=Ready", "--timeout=60s"], check=True)
        folder = Path(words["KUBECONFIG"]).parent
        assert cgroups(folder) and processes(folder) and settings() == before
        owner.send_signal(signal.SIGKILL)
    until(
        lambda: (processes(folder), cgroups(folder), list(tmp_path.iterdir())),
        "no process, cgroup or file is left",
        accept=lambda left: left == ([], [], []),
        pause=SLOW_PAUSE,
    )
    assert settings() == before


def settings() -> list[str]:
    return [Path("/proc/sys", name).read_text() for name in SETTINGS]


def cgroups(folder: Path) -> list[Path]:
    names = [hierarchy / f"{CGROUP}{folder.name}" for hierarchy in hierarchies()]
    return [path for path in names if path.exists()]


def processes(folder: Path) -> list[str]:
    """The command lines that name the folder, or are in the cgroups of its node."""
    commands = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, cgroup = (path / "cmdline").read_text(), (path / "cgroup").read_text()
        except OSError:
            continue
        if str(folder) in command or folder.name in cgroup:
            commands.append(command)
    return commands
