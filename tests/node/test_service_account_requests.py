"""A pod of a service account and the real embedded API server: TLS, token, rights. In both networks."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientSession

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster
from tests.node.sessions import V4, V5, Talk, query
from trainyard.client import ApiClient
from trainyard.node.kubelet.node import Node
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CONFIG_MAP, POD, SERVICE_ACCOUNT
from trainyard.server import Server
from trainyard.server.auth.certificates import CertificateAuthority

RBAC = "rbac.authorization.k8s.io"
ROLE, BINDING = GVK(RBAC, "v1", "Role", "roles"), GVK(RBAC, "v1", "RoleBinding", "rolebindings")
ASK = """
import json, os, ssl, urllib.error, urllib.request
folder = '/var/run/secrets/kubernetes.io/serviceaccount'
secure = ssl.create_default_context(cafile=f'/var/run/secrets/kubernetes.io/serviceaccount/ca.crt')
token = open('/var/run/secrets/kubernetes.io/serviceaccount/token').read()
place = 'https://' + os.environ['KUBERNETES_SERVICE_HOST'] + ':' + os.environ['KUBERNETES_SERVICE_PORT']
for path in ('pods/asks', 'secrets'):
    asked = urllib.request.Request(f'{place}/api/v1/namespaces/default/{path}')
    asked.add_header('Authorization', 'Bearer ' + token)
    try:
        print(json.loads(urllib.request.urlopen(asked, context=secure, timeout=20).read())['metadata']['name'])
    except urllib.error.HTTPError as error:
        print(error.code, json.loads(error.read())['message'])
"""


@pytest.fixture(params=["namespace", "shared"])
async def inside(request: pytest.FixtureRequest, state: Path, tmp_path: Path) -> AsyncIterator[NodeCluster]:
    """A cluster as the app wires it, and an account that may look at pods."""
    authority = CertificateAuthority.new(time.time())
    server, lines = Server(token=TOKEN), list[str]()
    await server.start()
    await server.start_tls(authority.server_context(tmp_path))
    place = urlsplit(server.tls_url)
    async with ApiClient(server.url, TOKEN) as api:
        apiserver = (str(place.hostname), int(place.port or 0))
        images = CurrentInterpreter(state)
        node = Node(
            api, state, images, network=request.param, token=TOKEN, print_message=lines.append, apiserver=apiserver
        )
        await node.start()
        ca = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": authority.pem}}
        await api.create(CONFIG_MAP, "default", {"apiVersion": "v1", "kind": "ConfigMap", **ca})
        robot = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        await api.create(SERVICE_ACCOUNT, "default", robot)
        await may_look(api)
        yield NodeCluster(api, node, lines)
        await node.stop(kill=True)
    await server.stop()


async def may_look(api: ApiClient) -> None:
    named: Json = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "looks"}}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    await api.create(ROLE, "default", {**named, "kind": "Role", "rules": rules})
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]
    role = {"apiGroup": RBAC, "kind": "Role", "name": "looks"}
    await api.create(BINDING, "default", {**named, "kind": "RoleBinding", "subjects": subjects, "roleRef": role})


async def test_a_pod_has_exactly_the_permissions_of_its_service_account(inside: NodeCluster) -> None:
    await inside.pod("asks", ASK, serviceAccountName="robot")
    own, refused = (await inside.result("asks")).splitlines()
    assert own == "asks"
    account = "system:serviceaccount:default:robot"
    assert refused.startswith(f'403 secrets is forbidden: User "{account}" cannot list resource "secrets"')
    volumes = (await inside.api.get(POD, "default", "asks"))["spec"]["volumes"]
    assert json.dumps(volumes).count("serviceAccountToken") == 1


@pytest.mark.parametrize("protocol", [V5, V4])
async def test_exec_from_a_pod_is_proxied_by_the_api_server(inside: NodeCluster, protocol: str) -> None:
    await inside.pod("box", "import time; time.sleep(600)", serviceAccountName="robot")
    await inside.phase("box", "Running")
    url = f"{inside.api.url}/api/v1/namespaces/default/pods/box/exec"
    script = "import sys; text = sys.stdin.readline(); print(text * 3, end=''); sys.exit(len(text))"
    parameters = query(["python", "-c", script], ["stdin", "stdout", "stderr"])
    async with (
        ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client,
        client.ws_connect(url, params=parameters, protocols=[protocol]) as socket,
    ):
        session = Talk(socket)
        await session.say(b"word\n")
        await session.end()
    assert (session.out, session.code) == (b"word\nword\nword\n", 5)
