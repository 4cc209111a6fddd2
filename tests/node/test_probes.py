"""Probes of containers on a real node, in both networks: by HTTP, TCP and a command, of containers and sidecars."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_cluster import TOKEN, NodeCluster, running_node
from tests.support.waiting import until_async
from tests.support.watched_objects import until_objects
from trainyard.node.kubelet.node import Node
from trainyard.objects import Json, find_condition
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import EVENT, POD

pytestmark = pytest.mark.slow

# Answers GETs with the code in the file named by its first argument, 503 without one; says when it gets SIGTERM.
SERVES = """
import http.server, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(open('code').read()) if os.path.exists('code') else 503)
        self.end_headers()
        self.wfile.write(b'x' * 100)
    def log_message(self, *args): pass
def told(*_):
    print('told', flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, told)
host, _, port = os.environ['LISTEN'].rpartition(':')
server = http.server.HTTPServer((host, int(port)), Handler)
print('serves', flush=True)
server.serve_forever()
"""
SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
SECOND = {"periodSeconds": 1}


def sh(script: str, **fields: Any) -> Json:
    """A probe that runs a shell script each second."""
    return {"exec": {"command": ["sh", "-c", script]}, **SECOND, **fields}


def processes(command: str) -> list[str]:
    """The command lines that contain this one."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended
            lines.append(file.read_text(errors="replace"))
    return [line for line in lines if command in line]


def container_status(status: Json, name: str = "main") -> Json:
    listed = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return next((entry for entry in listed if entry["name"] == name), {})


async def until_ready(cluster: NodeCluster, name: str, ready: bool) -> Json:
    def accept(status: Json) -> bool:
        condition = find_condition(status.get("conditions") or [], "Ready")
        return condition is not None and (condition["status"] == "True") is ready and bool(container_status(status))

    return (await cluster.until(name, accept))["status"]


async def messages(cluster: NodeCluster, name: str, reason: str, message: str) -> list[str]:
    """The messages of the pod's events of that reason, once there is one that contains `message`."""

    def of_pod(events: list[Json]) -> list[str]:
        return [
            event["message"]
            for event in events
            if event["reason"] == reason and event["involvedObject"]["name"] == name
        ]

    def accept(events: list[Json]) -> bool:
        return any(message in text for text in of_pod(events))

    return of_pod(await until_objects(cluster.api, EVENT, "default", accept, f"event {message}"))


async def test_an_http_probe_makes_a_pod_ready_and_a_part_of_its_service(cluster: NodeCluster, tmp_path: Path) -> None:
    await cluster.service("web", selector={"app": "web"}, ports=[{"port": 8080, "targetPort": "http"}])
    container = {
        "env": [{"name": "LISTEN", "value": "web-0:8080"}],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 1, **SECOND},
        "workingDir": str(tmp_path),
    }
    await cluster.pod("web-0", SERVES, container=container, metadata={"labels": {"app": "web"}})
    failed = await messages(cluster, "web-0", "Unhealthy", "statuscode")
    assert failed[-1] == "Readiness probe failed: HTTP probe failed with statuscode: 503"
    status = await until_ready(cluster, "web-0", False)
    assert (container_status(status)["started"], container_status(status)["ready"]) == (True, False)
    assert find_condition(status["conditions"], "Ready")["message"] == "containers with unready status: [main]"  # type: ignore[index]
    peers = cluster.node._directory.peers
    assert [peer.ready for peer in peers.values()] == [False]
    (tmp_path / "code").write_text("204")
    await until_ready(cluster, "web-0", True)
    assert [peer.ready for peer in peers.values()] == [True]
    (tmp_path / "code").write_text("500")
    await until_ready(cluster, "web-0", False)
    assert (await cluster.logs("web-0")) == "serves\n"  # no error of the server about a probe


async def test_a_liveness_probe_restarts_its_container_and_a_startup_probe_delays_it(cluster: NodeCluster) -> None:
    """The program creates the file that its startup probe wants, and its liveness probe fails in the first run."""
    script = "import os; open(os.environ['TMPDIR'] + '/' + 'run', 'a').write('x')\n" + SLEEPS
    container = {
        "startupProbe": sh("test -e $TMPDIR/run"),
        "livenessProbe": sh('echo alive?; [ "$(cat $TMPDIR/run)" = xx ]', failureThreshold=2),
        "readinessProbe": sh("true"),
    }
    await cluster.pod("trains", script, container=container, restartPolicy="OnFailure")
    pod = await cluster.until("trains", lambda status: container_status(status).get("restartCount") == 1, 40)
    ended = container_status(pod["status"])["lastState"]["terminated"]
    assert ended["exitCode"] == 143 and ended["reason"] == "Error"
    await until_ready(cluster, "trains", True)
    unhealthy = await messages(cluster, "trains", "Unhealthy", "Liveness")
    assert unhealthy[-1] == "Liveness probe failed: alive?\n"
    killing = await messages(cluster, "trains", "Killing", "")
    assert killing == ["Container main failed liveness probe, will be restarted"]


async def test_the_probes_of_a_replica_are_events_of_its_pod(cluster: NodeCluster) -> None:
    """A job's pods are mostly never restarted by the node: a failed probe ends them."""
    probe = sh("exit 3", failureThreshold=1, terminationGracePeriodSeconds=5)
    await cluster.pod("replica", SLEEPS, container={"livenessProbe": probe}, metadata={"labels": {OWNER: "a-job"}})
    pod = await cluster.phase("replica", "Failed")
    assert container_status(pod["status"])["state"]["terminated"]["exitCode"] == 143
    await messages(cluster, "replica", "Killing", "Stopping container main")
    listed = (await cluster.api.list(EVENT, "default"))["items"]
    assert [(event["reason"], event["message"]) for event in listed] == [
        ("Unhealthy", "Liveness probe failed: "),
        ("Killing", "Stopping container main"),
    ]


async def test_a_sidecar_whose_startup_probe_succeeds_lets_the_next_container_start(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    """By TCP, at a port that the sidecar opens once it may."""
    opens = f"""
import os, socket, time
while not os.path.exists({str(tmp_path / "may")!r}):
    time.sleep(0.01)
host, _, port = os.environ['LISTEN'].rpartition(':')
server = socket.create_server((host, int(port)), backlog=16)
time.sleep(600)
"""
    sidecar = {
        "name": "side",
        "image": "any",
        "command": ["python", "-c", opens],
        "restartPolicy": "Always",
        "env": [{"name": "LISTEN", "value": "two:7000"}],
        "startupProbe": {"tcpSocket": {"port": 7000}, "failureThreshold": 100, **SECOND},
    }
    await cluster.pod("two", "print('done')", initContainers=[sidecar])
    (refused, *_) = await messages(cluster, "two", "Unhealthy", "Startup")
    assert refused.startswith("Startup probe failed: dial tcp ") and refused.endswith(": connect: connection refused")
    status = (await cluster.api.get(POD, "default", "two"))["status"]
    assert status["phase"] == "Pending" and container_status(status, "side")["started"] is False
    assert container_status(status)["state"]["waiting"]["reason"] == "PodInitializing"
    (tmp_path / "may").touch()
    assert await cluster.result("two") == "done\n"


async def test_a_command_of_a_probe_that_hangs_is_killed_and_one_that_is_missing_is_no_result(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    starts, seconds = tmp_path / "starts", f"{os.getpid()}.5"
    container = {
        "readinessProbe": sh(f"echo >> {starts}; exec sleep {seconds}"),
        "livenessProbe": {"exec": {"command": ["no-such-command"]}, "failureThreshold": 1, **SECOND},
    }
    await cluster.pod("hangs", SLEEPS, container=container)
    texts = await messages(cluster, "hangs", "Unhealthy", "timed out")
    command = f"sh -c echo >> {starts}; exec sleep {seconds}"
    assert f'Readiness probe failed: command timed out: "{command}" timed out after 1s' in texts
    await until_async(lambda: len(starts.read_text()) >= 3, "the third start of the command")
    assert len(processes(f"sleep\0{seconds}")) <= 1
    texts = await messages(cluster, "hangs", "Unhealthy", "errored")
    assert (
        'Liveness probe errored and resulted in unknown state: exec: "no-such-command": '
        "executable file not found in $PATH"
    ) in texts
    assert container_status((await cluster.api.get(POD, "default", "hangs"))["status"])["restartCount"] == 0


async def test_a_restarted_node_goes_on_to_probe(state: Path) -> None:
    async with running_node(state, "shared") as cluster:
        await cluster.pod("kept", SLEEPS, container={"readinessProbe": sh("true")}, restartPolicy="Always")
        await until_ready(cluster, "kept", True)
        await cluster.node.stop(kill=True, will_restart=True)
        images = cluster.node._images
        cluster.node = Node(cluster.api, state, images, network="shared", token=TOKEN, print_message=print)
        await cluster.node.start()
        try:
            await cluster.until("kept", lambda status: container_status(status).get("restartCount") == 1)
            await until_ready(cluster, "kept", True)
        finally:
            await cluster.node.stop(kill=True)
