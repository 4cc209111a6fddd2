from __future__ import annotations

import asyncio
import base64
import ssl
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from trainyard.app.kubeconfig import ClusterAccess, KubeconfigError, find_cluster, in_cluster, read_kubeconfig
from trainyard.client import Unavailable, credentials
from trainyard.objects.resources import NAMESPACE
from trainyard.server import CertificateAuthority, Server

V1 = "client.authentication.k8s.io/v1"


def written(path: Path, user: Any = None, cluster: Any = None, **top: Any) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://example.invalid:6443/", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "there", "context": {"cluster": "c", "user": "u"}},
        ],
        "current-context": "here",
        **top,
    }
    path.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}))
    return path


def test_server_token_and_namespace_come_from_the_current_context(tmp_path: Path) -> None:
    access = read_kubeconfig([written(tmp_path / "k", {"token": "secret"})])
    assert (access.server, access.namespace, access.token) == ("https://example.invalid:6443", "team", "secret")
    assert "secret" not in repr(access)


def test_another_context_may_be_named(tmp_path: Path) -> None:
    assert read_kubeconfig([written(tmp_path / "k")], "there").namespace == "default"


def test_a_token_file_and_a_ca_file_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from a file\n")
    (tmp_path / "ca.pem").write_bytes(b"PEM")
    path = written(tmp_path / "k", {"tokenFile": "token"}, {"certificate-authority": "ca.pem"})
    assert (read_kubeconfig([path]).token, read_kubeconfig([path]).ca) == ("from a file", b"PEM")


def test_data_wins_over_a_file(tmp_path: Path) -> None:
    data = base64.b64encode(b"inside").decode()
    path = written(tmp_path / "k", cluster={"certificate-authority-data": data, "certificate-authority": "missing"})
    assert read_kubeconfig([path]).ca == b"inside"


def test_of_several_kubeconfigs_the_first_with_a_value_wins(tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text("current-context: there\n")
    second = written(tmp_path / "second", {"token": "two"})
    access = read_kubeconfig([first, tmp_path / "missing", second])
    assert (access.namespace, access.token) == ("default", "two")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"current-context": None}, "--context NAME"),
        ({"current-context": "nowhere"}, "there is no 'nowhere' under contexts; known are: here, there"),
        ({"contexts": 5}, "there is no 'here' under contexts; known are: none"),
        ({"clusters": []}, "contexts[here].cluster"),
        ({"users": []}, "contexts[here].user"),
        ({"cluster": {"server": ""}}, "server is missing"),
        ({"cluster": {"certificate-authority": "no.pem"}}, "no.pem, which cannot be read"),
        ({"cluster": {"proxy-url": "socks5://p"}}, "clusters[c].cluster.proxy-url is not an HTTP proxy"),
        ({"cluster": {"certificate-authority-data": "%"}}, "certificate-authority-data is not base64"),
        (
            {"user": {"auth-provider": {"name": "gcp"}}},
            "user.auth-provider is not supported; write a token",
        ),
        ({"user": {"exec": {"command": "aws"}}}, "users[u].user.exec.apiVersion is None; write client.authentication"),
        ({"user": {"exec": {"apiVersion": V1}}}, "users[u].user.exec.command is missing; write the program's name"),
        (
            {"user": {"exec": {"apiVersion": V1, "command": "a", "interactiveMode": "Always"}}},
            "users[u].user.exec.interactiveMode is Always: there is no terminal input",
        ),
        (
            {"user": {"exec": {"apiVersion": V1, "command": "a", "env": [{"value": "x"}]}}},
            "users[u].user.exec.env has an entry without a name",
        ),
    ],
)
def test_an_invalid_kubeconfig_is_reported_with_the_fix(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(KubeconfigError) as refused:
        read_kubeconfig([written(tmp_path / "k", **change)])
    assert message in str(refused.value) and str(tmp_path / "k") in str(refused.value)


@pytest.mark.parametrize("text", ["[", "a list", "- 1"])
def test_a_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "k").write_text(text)
    with pytest.raises(KubeconfigError, match=str(tmp_path)):
        read_kubeconfig([tmp_path / "k"])


def test_the_order_is_the_option_the_environment_the_background_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first, other = written(tmp_path / "one", {"token": "1"}), written(tmp_path / "other", {"token": "2"})
    env = {"KUBECONFIG": str(other)}
    assert (find_cluster(str(first), env=env).token, find_cluster(env=env).token) == ("1", "2")
    with pytest.raises(KubeconfigError, match="trainyard up"):
        find_cluster(env={})


def test_kubectls_default_kubeconfig_is_named_but_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube" / "config")
    with pytest.raises(KubeconfigError, match=r"kubectl's own is .*\.kube/config"):
        find_cluster(env={"HOME": str(tmp_path)})


def test_the_error_of_a_missing_kubeconfig_says_that_the_cluster_may_be_down(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="is the cluster down"):
        read_kubeconfig([tmp_path / "kubeconfig"])


def test_tls_is_verified_unless_the_kubeconfig_disables_it() -> None:
    assert ClusterAccess("https://x").secure() is None
    loose = ClusterAccess("https://x", insecure=True).secure()
    assert loose is not None and loose.verify_mode == ssl.CERT_NONE
    with pytest.raises(ssl.SSLError):
        ClusterAccess("https://x", ca=b"no certificate").secure()


async def test_tls_server_name_overrides_the_host_name(tmp_path: Path) -> None:
    authority = CertificateAuthority.new(time.time())
    server = Server(token="mine")
    await server.start()
    await server.start_tls(authority.server_context(tmp_path, names=["inner.example"], addresses=[]))
    request_lines = list[bytes]()

    async def proxied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request_lines.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        there = await asyncio.open_connection("127.0.0.1", urlsplit(server.tls_url).port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(passed_on(reader, there[1]), passed_on(there[0], writer))

    async with await asyncio.start_server(proxied, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        cluster = {
            "server": "https://kubernetes.default.svc:6443",  # the proxy's network knows that name, ours does not
            "proxy-url": f"http://127.0.0.1:{port}",
            "certificate-authority-data": base64.b64encode(authority.pem.encode()).decode(),
        }
        (tmp_path / "token").write_text("mine")
        user = {"tokenFile": "token"}
        async with read_kubeconfig([written(tmp_path / "wrong", user, cluster)]).api() as api:
            with pytest.raises(Unavailable, match="certificate"):
                await api.get(NAMESPACE, "", "default")
        cluster["tls-server-name"] = "inner.example"
        async with read_kubeconfig([written(tmp_path / "right", user, cluster)]).api() as api:
            assert (await api.get(NAMESPACE, "", "default"))["metadata"]["name"] == "default"
    await server.stop()
    assert set(request_lines) == {b"CONNECT kubernetes.default.svc:6443 HTTP/1.1"}


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(65536):
        writer.write(piece)
    writer.close()


def pod_folder(path: Path) -> Path:
    for name, text in {"token": "mine\n", "ca.crt": "PEM", "namespace": "team"}.items():
        (path / name).write_text(text)
    return path


def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = in_cluster(env, pod_folder(tmp_path))
    assert access is not None and "mine" not in repr(access)
    assert (access.server, access.namespace, access.token, access.ca) == (
        "https://10.96.0.1:443",
        "team",
        "mine",
        b"PEM",
    )
    ours = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert ours is not None and ours.server == "https://[fd00::1]:6443"


def test_outside_of_a_pod_there_is_no_service_account(tmp_path: Path) -> None:
    assert in_cluster({"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, tmp_path) is None
    assert in_cluster({}, pod_folder(tmp_path)) is None


async def test_credentials_follow_the_files_of_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "CHECK_INTERVAL", 0.0)
    (tmp_path / "token").write_text("one")
    path = written(tmp_path / "k", {"tokenFile": "token"})
    who = read_kubeconfig([path]).credentials()
    before = (await who.identity()).token
    (tmp_path / "token").write_text("another")
    assert (before, (await who.identity()).token) == ("one", "another")
    written(path, {"token": "inside"})
    assert (await who.identity()).token == "inside"


async def test_a_credential_plugin_beside_the_kubeconfig_gets_the_cluster_info(tmp_path: Path) -> None:
    code = "import json, os; info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
    code += "status = {'token': info['spec']['cluster']['server'] + os.environ['MORE']}\n"
    code += "print(json.dumps({'apiVersion': info['apiVersion'], 'kind': 'ExecCredential', 'status': status}))\n"
    (tmp_path / "login").write_text(f"#!{sys.executable}\n{code}")
    (tmp_path / "login").chmod(0o700)
    spec = {"apiVersion": V1, "command": "./login", "env": [{"name": "MORE", "value": "+"}], "provideClusterInfo": True}
    access = read_kubeconfig([written(tmp_path / "k", {"exec": spec})])
    assert (await access.credentials().identity()).token == "https://example.invalid:6443+"
