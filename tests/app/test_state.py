"""The folder of a local cluster that is kept: keys hold, what is broken stays beside, kinds are brought up to date."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainyard import kinds
from trainyard.app.background.state import RENEW_AFTER, ClusterState, jobs_in
from trainyard.app.background.state_check import FACTS, encode_facts
from trainyard.app.install import installed_kinds
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CRD
from trainyard.server import DiskError

TFJOB = GVK("tensorflow.org", "v1alpha1", "TfJob", "tfjobs")


def opened(folder: Path) -> tuple[str, str, int, list[str]]:
    """Token, authority, port, and the messages."""
    messages: list[str] = []
    state = ClusterState(folder, messages.append)
    try:
        context, authority = state.certified()
        assert isinstance(context, ssl.SSLContext)
        return state.token, authority, state.port, messages
    finally:
        state.close()


def test_token_certificate_and_port_are_kept_over_a_restart(tmp_path: Path) -> None:
    state = ClusterState(tmp_path, print)
    state.save_port(4444)
    state.close()
    first = opened(tmp_path)
    assert first[2] == 4444 and opened(tmp_path) == first and first[3] == []
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    assert not [path for path in (tmp_path / "keys").iterdir() if path.name == "ca.key"]


def test_the_cluster_s_process_never_loads_the_library_of_the_certificates(tmp_path: Path) -> None:
    """It takes 12 MB, which a background cluster would hold as long as it runs."""
    code = (
        "import pathlib, sys; from trainyard.app.background.state import ClusterState;"
        f"ClusterState(pathlib.Path({str(tmp_path)!r}), print).certified(); sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "keys" / "ca.crt").exists()


def test_the_key_of_tokens_holds_and_an_older_program_s_folder_is_given_one(tmp_path: Path) -> None:
    def key() -> bytes:
        state = ClusterState(tmp_path, print)
        state.close()
        return state.token_signing_key

    token = opened(tmp_path)[0]
    first = key()
    assert len(first) >= 32 and key() == first
    path = tmp_path / "keys" / FACTS
    facts = json.loads(path.read_text())
    older = {name: fact for name, fact in facts.items() if name in ("token", "port", "certified")}
    path.write_text(json.dumps(older))
    again = key()
    assert again not in (first, token.encode()) and key() == again
    assert opened(tmp_path)[0] == token, "the administrator's token stays"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_certificate_is_renewed_before_it_expires(tmp_path: Path) -> None:
    token, authority, _, _ = opened(tmp_path)
    path = tmp_path / "keys" / FACTS
    facts = json.loads(path.read_text())
    path.write_bytes(encode_facts(facts | {"certified": facts["certified"] - RENEW_AFTER - 1}))
    again, renewed, _, answer = opened(tmp_path)
    assert again == token and renewed != authority and "is renewed" in answer[0]


def test_a_start_continues_after_a_process_was_killed_while_renewing_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, authority, _, _ = opened(tmp_path)
    path = tmp_path / "keys" / FACTS
    path.write_bytes(encode_facts(json.loads(path.read_text()) | {"certified": 1.0}))
    with monkeypatch.context() as patch:
        patch.setattr("trainyard.app.background.state.sha256_of", lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            opened(tmp_path)
    again, renewed, _, _ = opened(tmp_path)
    assert again == token and renewed != authority


def test_a_state_has_one_user_at_a_time(tmp_path: Path) -> None:
    state = ClusterState(tmp_path, print)
    with pytest.raises(DiskError, match="another process"):
        ClusterState(tmp_path, print)
    with pytest.raises(DiskError, match="another process"):
        jobs_in(tmp_path)
    state.close()
    assert jobs_in(tmp_path) == []


async def test_a_cluster_restarts_from_its_state_folder_and_updates_its_crds(tmp_path: Path) -> None:
    options = LocalClusterOptions(
        network="shared", cache=tmp_path / "cache", say=lambda text: None, state_folder=tmp_path / "home"
    )
    name = f"{TFJOB.plural}.{TFJOB.group}"
    container = {"name": "tensorflow", "image": "x", "command": ["true"]}
    replica = {"tfReplicaType": "MASTER", "template": {"spec": {"containers": [container]}}}
    meta = {"name": "waits", "namespace": "default"}
    job: Json = {"apiVersion": TFJOB.api_version, "kind": "TfJob", "metadata": meta}
    job["spec"] = {"replicaSpecs": [replica], "suspend": True}
    async with LocalCluster(options) as cluster:
        await cluster.api.create(TFJOB, "default", job)
        ours = await cluster.api.get(CRD, "", name)
        older = {"spec": {"versions": [{**ours["spec"]["versions"][0], "additionalPrinterColumns": None}]}}
        await cluster.api.patch(CRD, "", name, older)
        server, uid = cluster.server.tls_url, ours["metadata"]["uid"]
    assert jobs_in(tmp_path / "home") == ["TfJob default/waits"]
    async with LocalCluster(options) as cluster:
        assert cluster.server.tls_url == server
        obj = await cluster.api.get(CRD, "", name)
        assert obj["spec"] == ours["spec"] and obj["metadata"]["uid"] == uid
        assert (await cluster.api.get(TFJOB, "default", "waits"))["metadata"]["name"] == "waits"
        revision = obj["metadata"]["resourceVersion"]
    async with LocalCluster(options) as cluster:
        assert (await cluster.api.get(CRD, "", name))["metadata"]["resourceVersion"] == revision


async def test_a_restart_patches_only_the_crds_that_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = LocalClusterOptions(network="shared", cache=tmp_path / "cache", say=print, state_folder=tmp_path / "home")
    names = [f"{kind.gvk.plural}.{kind.gvk.group}" for kind in kinds.ALL]
    async with LocalCluster(options) as cluster:
        await cluster.api.patch(CRD, "", names[2], {"spec": {"names": {"shortNames": ["short"]}}})
    patched, update = [], installed_kinds._update

    async def recorded(api: ApiClient, definition: Json) -> None:
        patched.append(definition["metadata"]["name"])
        await update(api, definition)

    monkeypatch.setattr(installed_kinds, "_update", recorded)
    async with LocalCluster(options):
        assert patched == [names[2]]


def test_the_port_and_the_certificate_are_saved_at_the_same_time(tmp_path: Path) -> None:
    """By the event loop and by a thread: both wrote one temporary file, and one of them did not find it any more."""
    state = ClusterState(tmp_path / "home", print)
    try:
        with ThreadPoolExecutor(2) as threads:
            for number in range(1, 200):
                saved = [threads.submit(state.save_port, number), threads.submit(state._save, certified=float(number))]
                for future in saved:
                    future.result()
        assert state.port == 199
    finally:
        state.close()
