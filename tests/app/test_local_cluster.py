from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from trainyard.app.catalogues import catalogues
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.client import ApiClient, ApiError
from trainyard.node.kubelet.node import NodeError
from trainyard.objects import GVK, Json, is_condition_true
from trainyard.objects.resources import CONFIG_MAP, POD

TFJOB = GVK("tensorflow.org", "v1alpha1", "TfJob", "tfjobs")


def options(folder: Path, messages: list[str], **more: object) -> LocalClusterOptions:
    arguments = {"network": "shared", "cache": folder / "cache", "say": messages.append, "parent": folder, **more}
    return LocalClusterOptions(**arguments)  # type: ignore[arg-type]  # a mixture of types by design


def left_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"cache"}


async def first(api: ApiClient, kind: GVK, name: str) -> Json:
    """The object of that name, as soon as there is one."""
    async with asyncio.timeout(20):
        async for line in api.watch(kind, "default", field_selector=f"metadata.name={name}"):
            if (event := json.loads(line))["type"] == "ADDED":
                return dict(event["object"])
    raise AssertionError(f"no {name}")


def a_job(code: str) -> Json:
    container = {"name": "tensorflow", "image": "example.invalid/x", "command": [sys.executable, "-uc", code]}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}
    spec = {"replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]}
    return {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": "a"}, "spec": spec}


async def test_a_job_succeeds_and_no_file_or_process_is_left(tmp_path: Path) -> None:
    async with LocalCluster(options(tmp_path, [])) as cluster:
        await cluster.api.create(TFJOB, "default", a_job("print('hello')"))
        async with asyncio.timeout(20):
            listed = await cluster.api.list(TFJOB, "default")
            async for _ in cluster.api.watch(TFJOB, "default", listed["metadata"]["resourceVersion"]):
                job = await cluster.api.get(TFJOB, "default", "a")
                if is_condition_true(job.get("status", {}).get("conditions"), "Succeeded"):
                    break
        assert cluster.folder.stat().st_mode & 0o777 == 0o700
    assert left_in(tmp_path) == set()


async def test_a_request_without_the_token_is_unauthorized(tmp_path: Path) -> None:
    async with LocalCluster(options(tmp_path, [])) as cluster:
        assert cluster.server.url == ""  # nothing listens but TLS
        trusted = ssl.create_default_context(cadata=cluster.root_ca)
        for token in ("", "wrong"):
            async with ApiClient(cluster.server.tls_url, token, trusted) as stranger:
                with pytest.raises(ApiError) as refused:
                    await stranger.list(POD)
                assert refused.value.code == 401


async def test_kubectl_and_pods_connect_by_tls_with_the_clusters_ca(tmp_path: Path) -> None:
    async with LocalCluster(options(tmp_path, [])) as cluster:
        path = cluster.write_kubeconfig()
        assert path.stat().st_mode & 0o777 == 0o600
        document = yaml.safe_load(path.read_text())
        place, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        assert place["server"] == cluster.server.tls_url and place["server"].startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cadata=base64.b64decode(place["certificate-authority-data"]).decode())
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session:
            for token, code in ((user["token"], 200), ("wrong", 401)):
                headers = {"Authorization": f"Bearer {token}"}
                async with session.get(f"{place['server']}/api/v1/pods", headers=headers) as got:
                    assert got.status == code
        for secret in cluster.folder.glob("apiserver.*"):
            assert secret.stat().st_mode & 0o777 == 0o600
        assert (await first(cluster.api, CONFIG_MAP, "kube-root-ca.crt"))["data"]["ca.crt"] == cluster.root_ca


ASKS = """
import json, os, ssl, urllib.error, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount"
read = lambda name: open(os.path.join(folder, name)).read()
trusted = ssl.create_default_context(cafile=os.path.join(folder, "ca.crt"))
place = "https://%s:%s" % (os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"])
def ask(what):
    url = "%s/api/v1/namespaces/%s/%s" % (place, read("namespace"), what)
    request = urllib.request.Request(url, headers={"Authorization": "Bearer " + read("token")})
    try:
        return urllib.request.urlopen(request, context=trusted, timeout=10).status
    except urllib.error.HTTPError as error:
        return error.code
said = ask("pods/asks"), ask("pods/other"), ask("secrets")
print(said)
raise SystemExit(said != (200, 403, 403))
"""


async def test_a_pod_has_exactly_the_permissions_of_its_service_account(tmp_path: Path) -> None:
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "resourceNames": ["asks"], "verbs": ["get"]}]
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    meta = {"name": "robot"}
    async with LocalCluster(options(tmp_path, [])) as cluster:
        for kind, plural, group, more in (
            ("ServiceAccount", "serviceaccounts", "", {}),
            ("Role", "roles", rbac, {"rules": rules}),
            ("RoleBinding", "rolebindings", rbac, {"subjects": [subject],
                                                   "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "robot"}}),
        ):  # fmt: skip
            gvk = GVK(group, "v1", kind, plural)
            await cluster.api.create(gvk, "default", {"apiVersion": gvk.api_version, "kind": kind,
                                                      "metadata": meta, **more})  # fmt: skip
        container = {"name": "main", "image": "example.invalid/x", "command": [sys.executable, "-c", ASKS]}
        spec = {"serviceAccountName": "robot", "restartPolicy": "Never", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"}, "spec": spec}
        await cluster.api.create(POD, "default", pod)
        assert await phase(cluster.api, "asks") == "Succeeded"


async def phase(api: ApiClient, name: str) -> str:
    """The phase in which a pod ends."""
    async with asyncio.timeout(30):
        async for line in api.watch(POD, "default", field_selector=f"metadata.name={name}"):
            phase = (json.loads(line)["object"].get("status") or {}).get("phase")  # a bookmark has none
            if phase in ("Succeeded", "Failed"):
                return str(phase)
    raise AssertionError(f"{name} does not end")


async def test_two_clusters_do_not_share_objects(tmp_path: Path) -> None:
    async with LocalCluster(options(tmp_path, [])) as first, LocalCluster(options(tmp_path, [])) as other:
        await first.namespace("only-here")
        assert first.token != other.token and first.folder != other.folder
        names = {
            item["metadata"]["name"]
            for item in (await other.api.list(GVK("", "v1", "Namespace", "namespaces")))["items"]
        }
        assert "only-here" not in names


async def test_an_unknown_network_stops_the_start_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(NodeError):
        async with LocalCluster(options(tmp_path, [], network="carrier-pigeon")):
            raise AssertionError("it started")
    assert left_in(tmp_path) == set()


async def test_stopping_twice_is_stopping_once(tmp_path: Path) -> None:
    cluster = LocalCluster(options(tmp_path, []))
    await cluster.start()
    await cluster.stop()
    await cluster.stop(kill=True)


def test_a_persons_own_catalogue_is_found_in_the_configuration_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert catalogues((Path("named.yaml"),)) == [Path("named.yaml")]
    own = tmp_path / "trainyard" / "images.yaml"
    own.parent.mkdir()
    own.write_text("images: []\n")
    assert catalogues((Path("named.yaml"),)) == [Path("named.yaml"), own]


@pytest.mark.parametrize("network", ["namespace", "shared"])
async def test_a_pod_that_names_no_folder_starts_where_the_cluster_was_started(tmp_path: Path, network: str) -> None:
    (tmp_path / "here").mkdir()
    cluster_options = options(tmp_path, [], network=network, working_directory=tmp_path / "here")
    async with LocalCluster(cluster_options) as cluster:
        container = {"name": "a", "image": "example.invalid/x", "command": ["sh", "-c", "pwd; echo kept > file"]}
        spec = {"restartPolicy": "Never", "containers": [container]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare"}, "spec": spec}
        await cluster.api.create(POD, "default", pod)
        async with asyncio.timeout(20):
            listed = await cluster.api.list(POD, "default")
            async for line in cluster.api.watch(POD, "default", listed["metadata"]["resourceVersion"]):
                if (json.loads(line)["object"].get("status") or {}).get("phase") in ("Succeeded", "Failed"):
                    break
        printed = b"".join([piece async for piece in cluster.api.logs("default", "bare", "a")])
    assert printed.decode() == f"{tmp_path}/here\n" and (tmp_path / "here/file").read_text() == "kept\n"
