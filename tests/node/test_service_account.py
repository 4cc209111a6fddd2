"""What a pod gets of its service account, and how it reaches the API server: in both networks."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster, waiting
from trainyard.client import ApiClient, ApiError
from trainyard.client.errors import error_for
from trainyard.node.kubelet.node import Node
from trainyard.objects import GVK, Json, format_time
from trainyard.objects.resources import CONFIG_MAP, SERVICE_ACCOUNT
from trainyard.server import CertificateAuthority, Server

pytestmark = pytest.mark.slow

FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
# As the admission plugin writes it.
VOLUME: Json = {
    "name": "kube-api-access-x2x4z",
    "projected": {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {
                "downwardAPI": {
                    "items": [
                        {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                    ]
                }
            },
        ],
    },
}
ACCOUNT = {"volumes": [VOLUME], "serviceAccountName": "robot"}
MOUNT: Json = {"volumeMounts": [{"name": VOLUME["name"], "mountPath": FOLDER, "readOnly": True}]}
ASK = f"""
import os, ssl, urllib.request
secure = ssl.create_default_context(cafile='{FOLDER}/ca.crt')
host, port = os.environ['KUBERNETES_SERVICE_HOST'], os.environ['KUBERNETES_SERVICE_PORT']
def ask(host):
    token = open('{FOLDER}/token').read()
    head = {{'Authorization': 'Bearer ' + token}}
    asked = urllib.request.Request(f'https://{{host}}:{{port}}/api/v1/namespaces/default/pods', headers=head)
    return urllib.request.urlopen(asked, context=secure, timeout=20).read().decode()
"""


@dataclass
class Tls:
    """A TLS server in the API server's place: it answers with what it was asked."""

    ca: str
    port: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        self.requests.append((request.path, request.headers.get("Authorization", "")))
        return web.Response(text=f"hello {request.headers.get('Authorization')}")


@dataclass
class Issuer:
    """The API server's part of TokenRequest. `life` is that of the next tokens."""

    life: float = 3607.0
    tokens: list[tuple[str, Json]] = field(default_factory=list)
    refusal: ApiError | None = None
    renewed: asyncio.Event = field(default_factory=asyncio.Event)

    def token(self, namespace: str, body: Json, now: float) -> Json:
        if self.refusal:
            raise self.refusal
        self.tokens.append((namespace, body))
        if len(self.tokens) > 1:
            self.renewed.set()
        return {"status": {"token": f"token-{len(self.tokens)}", "expirationTimestamp": format_time(now + self.life)}}


class WithTokens(ApiClient):
    """A client whose server hands out tokens, whatever the embedded one does yet."""

    issuer: Issuer

    async def create(self, gvk: GVK, namespace: str, obj: Json, subresource: str = "", **more: Any) -> Json:
        if (gvk, subresource) == (SERVICE_ACCOUNT, "token"):
            now = datetime.datetime.now(datetime.UTC).timestamp()
            return self.issuer.token(namespace, obj, now)
        return await super().create(gvk, namespace, obj, subresource, **more)


@dataclass
class World:
    cluster: NodeCluster
    tls: Tls
    issuer: Issuer

    async def root_ca(self) -> None:
        meta = {"name": "kube-root-ca.crt"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"ca.crt": self.tls.ca}}
        await self.cluster.api.create(CONFIG_MAP, "default", body)


@pytest.fixture(params=["namespace", "shared"])
async def world(request: pytest.FixtureRequest, state: Path, tmp_path: Path) -> AsyncIterator[World]:
    authority = CertificateAuthority.new(datetime.datetime.now(datetime.UTC).timestamp())
    context = authority.server_context(
        tmp_path, ("kubernetes.default.svc", "kubernetes.default"), ("127.0.0.1", "10.96.0.1")
    )
    tls, issuer, lines = Tls(authority.pem), Issuer(), list[str]()
    app = web.Application()
    app.router.add_get("/{any:.*}", tls.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    tls.port = runner.addresses[0][1]
    server = Server(token=TOKEN)
    await server.start()
    api = WithTokens(server.url, TOKEN)
    api.issuer = issuer
    async with api:
        place = ("127.0.0.1", tls.port)
        images = CurrentInterpreter(state)
        node = Node(api, state, images, network=request.param, token=TOKEN, print_message=lines.append, apiserver=place)
        await node.start()
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        await api.create(SERVICE_ACCOUNT, "default", account)
        yield World(NodeCluster(api, node, lines), tls, issuer)
        await node.stop(kill=True)
    await server.stop()
    await runner.cleanup()


async def test_a_pod_reaches_the_api_server_with_the_standard_library(world: World) -> None:
    await world.root_ca()
    await world.cluster.pod("asks", ASK + "print(ask(host))", container=MOUNT, **ACCOUNT)
    assert await world.cluster.result("asks") == "hello Bearer token-1\n"
    assert world.tls.requests == [("/api/v1/namespaces/default/pods", "Bearer token-1")]
    ((namespace, body),) = world.issuer.tokens
    pod = await world.cluster.phase("asks", "Succeeded")
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "asks", "uid": pod["metadata"]["uid"]}
    assert (namespace, body["metadata"]["name"]) == ("default", "robot")
    assert body["spec"] == {"expirationSeconds": 3607, "boundObjectRef": bound, "audiences": []}


async def test_the_files_are_there_with_their_modes_and_cannot_be_written(world: World) -> None:
    await world.root_ca()
    script = f"""
import os, stat
for name in ('ca.crt', 'namespace', 'token'):
    print(name, oct(stat.S_IMODE(os.stat('{FOLDER}/' + name).st_mode)))
print(open('{FOLDER}/namespace').read())
"""
    await world.cluster.pod("looks", script, container=MOUNT, **ACCOUNT)
    assert await world.cluster.result("looks") == "ca.crt 0o644\nnamespace 0o644\ntoken 0o644\ndefault\n"


async def test_a_pod_waits_for_the_root_certificate(world: World) -> None:
    await world.cluster.pod("waits", ASK + "print(ask(host))", container=MOUNT, **ACCOUNT)
    text = f'MountVolume.SetUp failed for volume "{VOLUME["name"]}" : configmap "kube-root-ca.crt" not found'
    pod = await world.cluster.until("waits", lambda status: waiting(status).get("message") == text)
    assert waiting(pod["status"])["reason"] == "ContainerCreating" and pod["status"]["phase"] == "Pending"
    await world.root_ca()
    assert (await world.cluster.result("waits")).startswith("hello Bearer token-")


async def test_a_pod_waits_for_its_service_account(world: World) -> None:
    await world.root_ca()
    world.issuer.refusal = error_for(404, "NotFound", 'serviceaccounts "robot" not found')
    await world.cluster.pod("waits", "print('runs')", container=MOUNT, **ACCOUNT)
    text = f'MountVolume.SetUp failed for volume "{VOLUME["name"]}" : '
    text += 'failed to fetch token: serviceaccounts "robot" not found'
    await world.cluster.until("waits", lambda status: waiting(status).get("message") == text)
    world.issuer.refusal = None
    assert await world.cluster.result("waits") == "runs\n"


async def test_a_token_file_is_renewed_before_the_token_expires(world: World) -> None:
    await world.root_ca()
    world.issuer.life = 2.0
    script = f"""
import time
seen = ''
while True:
    if (now := open('{FOLDER}/token').read()) != seen:
        print(now, flush=True)
        if seen:
            break
        seen = now
    time.sleep(0.01)
"""
    await world.cluster.pod("watches", script, container=MOUNT, **ACCOUNT)
    first, second = (await world.cluster.result("watches")).split()
    assert (first, second) != ("", "") and int(second.removeprefix("token-")) > int(first.removeprefix("token-"))


async def test_a_token_request_is_not_repeated_when_the_servers_clock_is_behind(world: World) -> None:
    await world.root_ca()
    world.issuer.life = -3600.0
    await world.cluster.pod("stays", "import time; time.sleep(1.2); print('done')", container=MOUNT, **ACCOUNT)
    assert await world.cluster.result("stays") == "done\n"
    assert len(world.issuer.tokens) == 1


async def test_a_pod_without_the_volume_gets_no_token_and_no_address_of_the_api_server(world: World) -> None:
    """Many programs take KUBERNETES_SERVICE_HOST as a sign that the token is at its fixed path, and fail without it."""
    await world.cluster.pod("plain", "import os; print([name for name in os.environ if name.startswith('KUBERNETES')])")
    assert await world.cluster.result("plain") == "[]\n" and not world.issuer.tokens


async def test_a_program_has_the_address_of_the_api_server_where_it_finds_the_token(world: World) -> None:
    """In network shared only texts of the pod that name the folder are rewritten to the place where it is."""
    await world.root_ca()
    script = "import os; f = '/var/run/' + 'secrets/kubernetes.io/serviceaccount/token'; "
    script += "print('KUBERNETES_SERVICE_HOST' in os.environ, os.path.exists(f))"
    await world.cluster.pod("fixed", script, container=MOUNT, **ACCOUNT)
    name = str(await world.cluster.result("fixed"))
    assert name == ("True True\n" if world.cluster.node.network == "namespace" else "False False\n")
    env = {"env": [{"name": "TOKEN", "value": f"{FOLDER}/token"}]}
    script = "import os; print('KUBERNETES_SERVICE_HOST' in os.environ, os.path.exists(os.environ['TOKEN']))"
    await world.cluster.pod("named", script, container={**MOUNT, **env}, **ACCOUNT)
    assert await world.cluster.result("named") == "True True\n"


async def test_the_variables_of_the_pod_win(world: World) -> None:
    env = [{"name": "KUBERNETES_SERVICE_HOST", "value": "elsewhere"}]
    await world.cluster.pod("own", "import os; print(os.environ['KUBERNETES_SERVICE_HOST'])", container={"env": env})
    assert await world.cluster.result("own") == "elsewhere\n"


@pytest.mark.parametrize("world", ["namespace"], indirect=True)
@pytest.mark.parametrize("host", ["kubernetes.default", "kubernetes.default.svc", "10.96.0.1"])
async def test_the_api_server_has_its_names_and_its_address(world: World, host: str) -> None:
    await world.root_ca()
    await world.cluster.pod("asks", ASK + f"print(port, ask({host!r}))", container=MOUNT, **ACCOUNT)
    assert await world.cluster.result("asks") == "443 hello Bearer token-1\n"


@pytest.mark.parametrize("world", ["namespace"], indirect=True)
async def test_requests_inside_the_cluster_bypass_the_http_proxy(world: World) -> None:
    service = {"ports": [{"port": 2379}], "selector": {"app": "x"}}
    address = (await world.cluster.service("etcd-service", **service))["spec"]["clusterIP"]
    script = """
import json, os, urllib.request
print(json.dumps([host for host in {hosts} if not urllib.request.proxy_bypass(host)]))
"""
    hosts = ["10.96.0.1", "kubernetes.default", "kubernetes.default.svc", "etcd-service", "etcd-service.default"]
    hosts += [address, "etcd-service.default.svc.cluster.local", "me", "127.0.0.1", "outside.example"]
    await world.cluster.pod("me", script.format(hosts=hosts))
    assert json.loads(await world.cluster.result("me")) == ["outside.example"]


@pytest.mark.parametrize("world", ["shared"], indirect=True)
async def test_paths_of_mounted_files_inside_scripts_are_rewritten(world: World) -> None:
    await world.root_ca()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "agent"}}
    script = f"print(len(open('{FOLDER}/token').read()), open(__file__).read().startswith('#!/ag' + 'ent/'))"
    await world.cluster.api.create(
        CONFIG_MAP, "default", {**body, "data": {"agent.py": f"#!/agent/agent.py\n{script}"}}
    )
    mounts = [*MOUNT["volumeMounts"], {"name": "agent", "mountPath": "/agent"}]
    container = {"command": ["python", "/agent/agent.py"], "volumeMounts": mounts}
    volumes = [{"name": "agent", "configMap": {"name": "agent"}}, VOLUME]
    await world.cluster.pod("reads", container=container, volumes=volumes)
    assert await world.cluster.result("reads") == "7 False\n"
