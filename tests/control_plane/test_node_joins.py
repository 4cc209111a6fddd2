"""`trainyard node` on a real control plane: what a person sees of pods that its scheduler places here."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.control_plane.joined_commands import POLITE, Joined, condition_message, exists, joined
from tests.support.control_plane import ControlPlane
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.node_agent import JoinedNode, JoinOptions
from trainyard.client import Forbidden
from trainyard.node.kubelet.node import NodeError
from trainyard.node.kubelet.registration import FEATURES
from trainyard.objects import Json
from trainyard.objects.resources import JOB, LEASE, NODE, POD, SERVICE, STATEFUL_SET
from trainyard.server import CertificateAuthority

pytestmark = pytest.mark.cluster


@pytest.fixture(params=["namespace", "shared"])
async def either(request: pytest.FixtureRequest, control_plane: ControlPlane, namespace: str) -> AsyncIterator[Joined]:
    async with joined(control_plane, namespace, network=request.param) as node:
        yield node


@pytest.fixture
async def here(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Joined]:
    async with joined(control_plane, namespace) as node:
        yield node


async def test_a_node_registers_its_properties(here: Joined) -> None:
    node = await here.api.get(NODE, "", here.name)
    status = node["status"]
    assert condition_message(node, "Ready") == "True" and status["declaredFeatures"] == list(FEATURES)
    assert status["addresses"] == [{"type": "InternalIP", "address": "127.0.0.1"}]
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] and status["nodeInfo"]["kubeletVersion"]
    assert int(status["allocatable"]["cpu"]) == os.cpu_count()
    assert status["allocatable"]["ephemeral-storage"] not in ("", "0")
    lease = await here.api.get(LEASE, "kube-node-lease", here.name)
    assert lease["spec"]["holderIdentity"].startswith(here.name) and lease["spec"]["renewTime"]


async def test_a_batch_job_of_a_real_process_succeeds(either: Joined) -> None:
    work = either.spec("echo started; sleep 0.2; echo finished", container={"resources": {"requests": {"cpu": "10m"}}})
    body = {"metadata": {"name": "j"}, "spec": {"completions": 2, "parallelism": 2, "template": {"spec": work}}}
    await either.api.create(JOB, either.namespace, {"apiVersion": JOB.api_version, "kind": "Job", **body})
    done = await either.until("j", lambda job: condition_message(job, "Complete") == "True", JOB)
    assert done["status"]["succeeded"] == 2
    assert await either.kubectl("logs", "-l", "job-name=j") == "started\nfinished\n" * 2
    pods = (await either.api.list(POD, either.namespace))["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {either.name}
    assert all(not pod["status"]["podIP"].startswith("127.") for pod in pods)
    assert {pod["status"]["qosClass"] for pod in pods} == {"Burstable"}


async def test_logs_are_followed_live(either: Joined) -> None:
    shared = {"volumes": [{"name": "v", "emptyDir": {}}]}
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/signals"}]}
    script = "echo one; until [ -e /signals/go ]; do sleep 0.02; done; echo two"
    await either.pod("talks", script, container=mount, **shared)
    await either.ready("talks")
    kubectl, config = str(either.plane.programs["kubectl"]), str(either.plane.kubeconfig)
    command = (kubectl, "--kubeconfig", config, "-n", either.namespace, "logs", "-f", "talks")
    follows = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert follows.stdout is not None
    async with asyncio.timeout(20):
        assert await follows.stdout.readline() == b"one\n"
        ended, _, why = await either.run("exec", "talks", "--", "touch", "/signals/go")
        assert ended in (0, 137), why  # the container may end first, and takes along who is in it
        assert await follows.stdout.readline() == b"two\n"
        assert await follows.stdout.read() == b"" and await follows.wait() == 0
    assert await either.kubectl("logs", "--tail=1", "talks") == "two\n"


async def test_exec_passes_input_output_and_the_exit_code(either: Joined) -> None:
    await either.pod("open", POLITE)
    await either.ready("open")
    assert await either.run("exec", "-i", "open", "--", "cat", stdin="some words") == (0, "some words", "")
    code, out, err = await either.run("exec", "open", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (code, out) == (3, "out\n") and err.startswith("err\n")
    code, _, err = await either.run("exec", "open", "-c", "nobody", "--", "true")
    assert code == 1 and "nobody" in err


async def test_exec_supports_clients_of_the_earlier_subprotocol(here: Joined) -> None:
    """v5 is kubectl's subprotocol; older clients and kubexec.py use v4."""
    await here.pod("open", POLITE)
    await here.ready("open")
    url = f"{here.plane.url}/api/v1/namespaces/{here.namespace}/pods/open/exec"
    query = [("command", "echo"), ("command", "four"), ("stdout", "true"), ("stderr", "true")]
    headers = {"Authorization": f"Bearer {here.plane.token()}"}
    secure = here.plane.identities.secure()
    got: dict[int, bytes] = {}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.ws_connect(url, params=query, protocols=["v4.channel.k8s.io"], ssl=secure) as socket,
    ):
        assert socket.protocol == "v4.channel.k8s.io"
        async for message in socket:
            got[message.data[0]] = got.get(message.data[0], b"") + message.data[1:]
    assert got[1] == b"four\n" and json.loads(got[3])["status"] == "Success"


SERVE = """
import http.server, os, sys
class Say(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["NAME"].encode())
    def log_message(self, *words):
        pass
host, port = sys.argv[1].split(":")
http.server.HTTPServer((host, int(port)), Say).serve_forever()
"""
FETCH = """
import sys, time, urllib.request
for place in sys.argv[1:]:
    for _ in range(100):
        try:
            print(urllib.request.urlopen("http://" + place, timeout=5).read().decode())
            break
        except OSError:
            time.sleep(0.1)
"""


async def test_a_stateful_set_is_found_by_its_names_and_a_service_by_its_address(either: Joined) -> None:
    container = {
        "image": "python:3.11",
        "command": ["python", "-c", SERVE, "0.0.0.0:8080"],
        "ports": [{"containerPort": 8080, "name": "http"}],
        "env": [{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }
    selector = {"app": "s"}
    work = either.spec("", container=container, restartPolicy="Always")
    template = {"metadata": {"labels": selector}, "spec": work}
    spec = {"replicas": 2, "serviceName": "s", "selector": {"matchLabels": selector}, "template": template}
    await either.create(
        service("s", clusterIP="None", selector=selector, ports=[{"port": 8080, "targetPort": "http"}]),
        service("front", selector=selector, ports=[{"port": 80, "targetPort": "http"}]),
        {"apiVersion": STATEFUL_SET.api_version, "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": spec},
    )
    await either.until("s", lambda stateful_set: stateful_set["status"].get("readyReplicas") == 2, STATEFUL_SET)
    front = (await either.api.get(SERVICE, either.namespace, "front"))["spec"]["clusterIP"]
    assert not front.startswith("10.96.")  # this server has another range than the usual one
    places = ["s-0.s:8080", "s-1.s:8080", f"{front}:80", "front:80"]
    await either.pod("asks", "", container={"image": "python:3.11", "command": ["python", "-c", FETCH, *places]})
    result = (await either.result("asks")).split()
    assert result[:2] == ["s-0", "s-1"] and {*result[2:]} <= {"s-0", "s-1"} and len(result) == 4


def service(name: str, **spec: object) -> Json:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


async def test_a_pod_authenticates_with_its_own_token(either: Joined) -> None:
    ask = """
import json, os, ssl, urllib.request
folder = os.environ["PLACE"]
host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
secure = ssl.create_default_context(cafile=folder + "/ca.crt")
about = urllib.request.Request(
    "https://%s:%s/apis/authentication.k8s.io/v1/selfsubjectreviews" % (host, port),
    data=b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}',
    headers={"Authorization": "Bearer " + open(folder + "/token").read(), "Content-Type": "application/json"},
)
print(json.load(urllib.request.urlopen(about, context=secure))["status"]["userInfo"]["username"])
"""
    place = {"name": "PLACE", "value": "/var/run/secrets/kubernetes.io/serviceaccount"}
    container = {"command": ["python", "-c", ask], "image": "python:3.11", "env": [place]}
    await either.pod("asks", "", container=container)
    assert await either.result("asks") == f"system:serviceaccount:{either.namespace}:default\n"


async def test_a_deleted_pod_gets_its_grace_period_before_its_object_is_removed(either: Joined) -> None:
    await either.pod("polite", POLITE, terminationGracePeriodSeconds=20)
    await either.up("polite")
    watch = asyncio.create_task(either.until("polite", lambda pod: pod["status"]["phase"] == "Failed"))
    await asyncio.sleep(0)
    await either.kubectl("delete", "pod", "polite", "--wait=false")
    ended = (await watch)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 7
    await either.gone("polite")


async def test_a_graceful_stop_ends_the_pods_and_deregisters_the_node(here: Joined) -> None:
    await here.pod("polite", POLITE)
    await here.up("polite")
    assert here.node is not None
    await here.node.stop()
    pod = await here.api.get(POD, here.namespace, "polite")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
    assert condition_message(pod, "DisruptionTarget") == "True"
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert not await exists(here.api, here.name)
    assert not (await here.api.list(LEASE, "kube-node-lease", field_selector=f"metadata.name={here.name}"))["items"]


async def test_a_node_that_was_there_before_stays_and_is_used_again(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async with control_plane.api() as api:
        kept = Joined(control_plane, api, namespace, "kept")
        await api.create(NODE, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "kept"}})
        await (await kept.join(tmp_path / "a")).stop()
        node = await api.get(NODE, "", "kept")
        assert node["spec"]["unschedulable"] and condition_message(node, "Ready") == "False"
        again = await kept.join(tmp_path / "b")
        node = await api.get(NODE, "", "kept")
        assert "unschedulable" not in node["spec"] and condition_message(node, "Ready") == "True"
        await again.stop()
        await api.delete(NODE, "", "kept")


async def test_only_the_api_server_may_ask_the_node(here: Joined, tmp_path: Path) -> None:
    port = (await here.api.get(NODE, "", here.name))["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    url = f"https://127.0.0.1:{port}/containerLogs/{here.namespace}/nobody/main"
    pki = here.plane.identities.folder

    async def ask(*shown: Path, token: str = "") -> tuple[int, str]:
        secure = ssl.create_default_context()
        secure.check_hostname, secure.verify_mode = False, ssl.CERT_NONE
        if shown:
            secure.load_cert_chain(shown[0], shown[1] if shown[1:] else None)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession() as client, client.get(url, ssl=secure, headers=headers) as answer:
            return answer.status, await answer.text()

    assert (await ask(pki / "kubelet-client.crt", pki / "kubelet-client.key"))[0] == 404  # there is no such pod
    for token in ("", here.plane.token()):
        code, body = await ask(token=token)
        assert code == 401 and "--kubelet-client-certificate" in body
    code, body = await ask(pki / "carol.crt", pki / "carol.key")
    assert code == 401 and "a certificate for carol is not an API server's" in body
    forged = (
        CertificateAuthority.new(time.time())
        .client_certificate("kube-apiserver-kubelet-client")
        .write(tmp_path / "forged")
    )
    with pytest.raises(aiohttp.ClientError):
        await ask(*forged)


async def test_a_second_node_of_the_name_is_refused(here: Joined, tmp_path: Path) -> None:
    second = Joined(here.plane, here.api, here.namespace, here.name)
    with pytest.raises(NodeError, match=f"another node {here.name} is running.*choose another name"):
        await second.join(tmp_path)
    assert condition_message(await here.api.get(NODE, "", here.name), "Ready") == "True"
    await here.pod("still", "echo here")
    assert await here.result("still") == "here\n"


async def test_a_node_name_with_an_unknown_holder_is_taken_when_its_lease_expires(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async with control_plane.api() as api:
        elsewhere = Joined(control_plane, api, namespace, "elsewhere")
        spec = {"holderIdentity": "elsewhere_another.1_1.1_x", "leaseDurationSeconds": 2}
        meta = {"name": "elsewhere", "namespace": "kube-node-lease"}
        body = {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": meta, "spec": spec}
        await api.create(LEASE, "kube-node-lease", body)
        began = time.monotonic()
        node = await elsewhere.join(tmp_path)
        assert time.monotonic() - began >= 2 and "waiting to see whether it renews its lease" in elsewhere.messages[0]
        await node.stop()


async def test_a_user_without_node_permissions_is_told_which_are_missing(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    access = read_kubeconfig([control_plane.kubeconfig], "alice")
    node = JoinedNode(JoinOptions(access=access, name="alices", state=tmp_path, say=lambda _: None))
    with pytest.raises(Forbidden, match='User "alice" cannot get resource "leases"'):
        await node.start()


async def test_a_node_object_that_is_deleted_or_tainted_is_restored(here: Joined) -> None:
    await here.api.delete(NODE, "", here.name)
    await here.until(here.name, lambda node: condition_message(node, "Ready") == "True", NODE)
    lost = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "nobody knows"}]
    await here.api.patch(NODE, "", here.name, {"status": {"conditions": lost}}, "status")
    await here.until(here.name, lambda node: condition_message(node, "Ready") == "True", NODE)
