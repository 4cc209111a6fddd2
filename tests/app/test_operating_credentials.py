"""The credentials of the operator's process: tokens that expire, programs that give tokens, and a new authority."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from tests.app.operating_setup import options
from tests.app.operating_values import NARROW, TFJOB, Site, tf_job
from tests.support.running_operator import operating
from tests.support.waiting import until_async
from trainyard.app.operating import find_cluster
from trainyard.client import ApiClient, Unavailable
from trainyard.client.credentials import StaticCredentials
from trainyard.objects.structs import replace


async def test_an_expired_token_is_replaced_by_the_one_in_the_file(site: Site) -> None:
    await site.account(NARROW)
    async with operating(options(site)):
        await site.api.create(TFJOB, "default", tf_job("one"))
        await site.says("one", "Created")
        site.shift += 700  # the token lived for 600
        await site.new_token()
        await site.api.create(TFJOB, "default", tf_job("two"))
        await site.says("two", "Created")


async def test_the_operator_continues_when_a_new_token_comes_late(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    await site.account(NARROW)
    async with operating(options(site)):
        await site.api.create(TFJOB, "default", tf_job("one"))
        await site.says("one", "Created")
        site.shift += 700
        await site.api.create(TFJOB, "default", tf_job("two"))
        await until_async(lambda: "401" in caplog.text, "a request is refused")
        await site.new_token()
        await site.says("two", "Created")


async def test_a_credential_plugin_is_called_again_when_its_token_expires(site: Site, tmp_path: Path) -> None:
    await site.account(NARROW)
    code = "import json, pathlib, sys\nstatus = {'token': pathlib.Path(sys.argv[1]).read_text()}\n"
    code += "print(json.dumps({'apiVersion': sys.argv[2], 'kind': 'ExecCredential', 'status': status}))\n"
    version = "client.authentication.k8s.io/v1"
    plugin = {"apiVersion": version, "command": sys.executable, "interactiveMode": "Never"}
    user = {"exec": {**plugin, "args": ["-c", code, str(site.folder / "token"), version]}}
    cluster = {"server": site.server.tls_url, "certificate-authority": str(site.folder / "ca.crt")}
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(content))
    with_kubeconfig = replace(options(site), access=find_cluster({}, str(tmp_path / "kubeconfig")))
    async with operating(with_kubeconfig):
        await site.api.create(TFJOB, "default", tf_job("one"))
        await site.says("one", "Created")
        site.shift += 700  # the program has not said that its token would end
        await site.new_token()
        await site.api.create(TFJOB, "default", tf_job("two"))
        await site.says("two", "Created")


async def test_a_new_authority_is_trusted_when_its_certificate_is_in_the_folder(site: Site) -> None:
    await site.account(NARROW)
    who = find_cluster(site.env, folder=site.folder)
    old = await who.credentials().identity()
    credentials = who.credentials()
    async with operating(options(site)):
        await site.api.create(TFJOB, "default", tf_job("one"))
        await site.says("one", "Created")
        site.rotate()
        await site.api.create(TFJOB, "default", tf_job("two"))
        await site.says("two", "Created")
    async with (
        ApiClient(who.server, StaticCredentials(old.token, old.secure)) as late,
        ApiClient(who.server, credentials) as renewed,
    ):
        with pytest.raises(Unavailable, match="the server's certificate is not valid"):
            await late.list(TFJOB)
        await renewed.list(TFJOB)
