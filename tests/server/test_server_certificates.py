"""The cluster's own certificates, and the TLS door they open."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.server.server_clients import ACCOUNTS, MAPS, PODS, RBAC, Client, account, config_map, following, pod
from trainyard.objects import decode
from trainyard.server import CertificateAuthority, Server
from trainyard.server.builtin.bootstrap_objects import SERVICE_ADDRESS


@pytest.fixture
def authority() -> CertificateAuthority:
    return CertificateAuthority.new(time.time())


@pytest.fixture
async def secure(authority: CertificateAuthority, tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(token="canary")
    await server.start()
    await server.start_tls(authority.server_context(tmp_path))
    yield server
    await server.stop()


def trusting(authority: CertificateAuthority) -> ssl.SSLContext:
    """As strict as the strictest client: Python 3.13 refuses certificates that earlier ones took."""
    context = ssl.create_default_context(cadata=authority.pem)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def session(authority: CertificateAuthority, sent: str = "Bearer canary") -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=trusting(authority))
    return aiohttp.ClientSession(connector=connector, headers={"Authorization": sent} if sent else {})


async def test_both_listeners_serve_the_same_objects(secure: Server, authority: CertificateAuthority) -> None:
    assert secure.url.startswith("http://127.0.0.1:") and secure.tls_url.startswith("https://127.0.0.1:")
    async with session(authority) as client_session:
        tls, plain = Client(client_session, secure.tls_url), Client(client_session, secure.url)
        await tls.make(MAPS, config_map("a"))
        assert (await plain.ask("GET", f"{MAPS}/a"))[0] == 200
        async with tls.watch(MAPS) as lines:
            assert await following(lines, 1) == [("ADDED", "a")]
            await plain.make(MAPS, config_map("b"))
            assert await following(lines, 1) == [("ADDED", "b")]


async def test_the_names_of_the_server_are_in_its_certificate(secure: Server, authority: CertificateAuthority) -> None:
    """A pod calls it by the Service's name or address, whatever the connection goes through."""
    port = int(secure.tls_url.rpartition(":")[2])
    headers = {"Authorization": "Bearer canary"}
    for name in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
                 "kubernetes.default.svc.cluster.local", "127.0.0.1", SERVICE_ADDRESS):  # fmt: skip
        async with (
            session(authority) as client_session,
            client_session.get(f"https://127.0.0.1:{port}/readyz", headers=headers, server_hostname=name) as got,
        ):
            assert got.status == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        async with session(authority) as client_session:
            await client_session.get(f"https://127.0.0.1:{port}/readyz", server_hostname="example.com")


async def test_another_authority_is_not_trusted(secure: Server) -> None:
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        async with session(CertificateAuthority.new(time.time())) as client_session:
            await client_session.get(f"{secure.tls_url}/readyz")


def test_private_keys_on_disk_are_readable_by_this_user_only(authority: CertificateAuthority, tmp_path: Path) -> None:
    authority.server_context(tmp_path)
    authority.server_context(tmp_path)  # a second one takes its place
    files = {path.name: path for path in tmp_path.iterdir()}
    assert set(files) == {"apiserver.crt", "apiserver.key"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files.values())
    assert "PRIVATE KEY" not in authority.pem and "PRIVATE KEY" in files["apiserver.key"].read_text()
    assert authority.pem not in files["apiserver.crt"].read_text()


def test_the_cryptography_library_is_loaded_only_for_certificates() -> None:
    code = "import sys, trainyard.server; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_the_tls_listener_is_on_loopback_only_and_needs_a_started_server(
    authority: CertificateAuthority, tmp_path: Path
) -> None:
    context = authority.server_context(tmp_path)
    with pytest.raises(ValueError, match="loopback only"):
        await Server().start_tls(context, host="0.0.0.0")
    with pytest.raises(RuntimeError, match="has not been started"):
        await Server().start_tls(context)


async def test_an_account_comes_in_with_its_token_and_is_judged(
    secure: Server, authority: CertificateAuthority
) -> None:
    async with session(authority) as client_session:
        admin = Client(client_session, secure.tls_url)
        await admin.make(ACCOUNTS, account("robot"))
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = (await admin.make(f"{ACCOUNTS}/robot/token", request))["status"]["token"]
        async with session(authority, f"Bearer {token}") as two:
            robot = Client(two, secure.tls_url)
            code, answer = await robot.ask("GET", MAPS)
            assert (code, answer["reason"]) == (403, "Forbidden") and "canary" not in str(answer)
            assert (await robot.ask("GET", "/api/v1"))[0] == 200
            bound = {
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "b"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
            }  # fmt: skip
            await admin.make(f"{RBAC}/namespaces/default/rolebindings", bound)
            assert (await robot.ask("GET", MAPS))[0] == 200
            assert (await robot.ask("GET", "/api/v1/namespaces/default/secrets"))[0] == 403
            await admin.ask("DELETE", f"{ACCOUNTS}/robot")
            assert (await robot.ask("GET", MAPS))[0] == 401


async def test_anonymous_requests_are_unauthorized(secure: Server, authority: CertificateAuthority) -> None:
    for sent in ("", "Bearer wrong", "Bearer a.b.c", "Bearer ..", "Bearer é", "Basic canary", "canary"):
        async with session(authority, sent) as client_session, client_session.get(f"{secure.tls_url}{MAPS}") as got:
            assert got.status == 401, sent


async def test_only_the_administrator_may_impersonate(secure: Server, authority: CertificateAuthority) -> None:
    for_robot = {"Impersonate-User": "system:serviceaccount:default:robot"}
    async with session(authority) as client_session:
        admin = Client(client_session, secure.tls_url)
        async with client_session.get(f"{secure.tls_url}{MAPS}", headers=for_robot) as got:
            message = decode(await got.read())["message"]
            assert got.status == 403 and 'User "system:serviceaccount:default:robot" cannot list' in message
        await admin.make(ACCOUNTS, account("robot"))
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        token = (await admin.make(f"{ACCOUNTS}/robot/token", request))["status"]["token"]
    headers = {"Impersonate-User": "trainyard-admin", "Impersonate-Group": "system:masters"}
    async with session(authority, f"Bearer {token}") as two, two.get(f"{secure.tls_url}{MAPS}", headers=headers) as got:
        assert got.status == 403 and "cannot impersonate resource" in await got.text()


async def test_pods_get_their_token_once_there_is_a_tls_listener(
    client: Client, server: Server, authority: CertificateAuthority, tmp_path: Path
) -> None:
    assert "volumes" not in (await client.make(PODS, pod("early")))["spec"]
    await server.start_tls(authority.server_context(tmp_path))
    created = await client.make(PODS, pod("late"))
    assert created["spec"]["volumes"][0]["name"].startswith("kube-api-access-")


async def test_a_cluster_begins_with_the_service_of_its_own_api(client: Client) -> None:
    _, service = await client.ask("GET", "/api/v1/namespaces/default/services/kubernetes")
    assert service["spec"]["clusterIP"] == SERVICE_ADDRESS
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("https", 443)]
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}}
    created = await client.make("/api/v1/namespaces/default/services", other)
    assert created["spec"]["clusterIP"] != SERVICE_ADDRESS
    code, answer = await client.ask("POST", "/api/v1/namespaces/default/services",
                                  {**other, "metadata": {"name": "b"},
                                   "spec": {"ports": [{"port": 1}], "clusterIP": SERVICE_ADDRESS}})  # fmt: skip
    assert code == 422 and "already allocated" in answer["message"]
