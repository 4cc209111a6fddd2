"""What uninstalls the operator removes no job: each documented way, with the real kubectl and the embedded server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.samples import mxjob
from tools.generate_manifests import ROOT
from trainyard import kinds
from trainyard.app.install.installation import Install, lasting_objects, operator_objects
from trainyard.cli.install_manifests import to_yaml
from trainyard.client import ApiClient
from trainyard.objects import uid_of
from trainyard.objects.resources import CRD, DEPLOYMENT
from trainyard.server import Server, trust_crd

MXJOB = kinds.MXJOB.gvk


@dataclass(frozen=True)
class Way:
    """The words after `kubectl`, where the repository is the working directory; "-" reads what `manifests` prints."""

    install: tuple[tuple[str, ...], ...]
    uninstall: tuple[str, ...]
    namespace: str  # of the operator


WAYS = {
    "deploy": Way(
        (("create", "-f", "deploy/definitions/", "-f", "deploy/"),), ("delete", "-f", "deploy/"), "chainer-operator"
    ),
    "kustomize": Way(
        (("create", "-k", "config/definitions"), ("create", "-k", "config/default")),
        ("delete", "-k", "config/default"),
        "elastic-job",
    ),
    "examples": Way(
        (("create", "-f", "examples/mx_operator_definitions.yaml", "-f", "examples/mx_operator_deploy.yaml"),),
        ("delete", "-f", "examples/mx_operator_deploy.yaml"),
        "default",
    ),
    "manifests": Way((("create", "-f", "-"),), ("delete", "-f", "-"), "trainyard"),
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    api_server = Server()
    for kind in kinds.ALL:
        trust_crd(kinds.crd(kind))
    await api_server.start()
    yield api_server
    await api_server.stop()


async def kubectl(server: Server, home: Path, *arguments: str, stdin: str = "") -> None:
    validate = ("--validate=false",) if arguments[0] == "create" else ()
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "--server", server.url, *arguments, *validate),
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate(stdin.encode())
    assert process.returncode == 0, output.decode()


@pytest.mark.parametrize("name", WAYS)
async def test_jobs_and_crds_survive_an_uninstall_and_reinstall(server: Server, tmp_path: Path, name: str) -> None:
    way = WAYS[name]
    operator, lasting = to_yaml(operator_objects(Install())), to_yaml(lasting_objects(Install()))
    async with ApiClient(server.url) as api:
        for command in way.install:
            await kubectl(server, tmp_path, *command, stdin=lasting + operator)
        body = mxjob()
        body["metadata"] = {"name": "job"}
        job = await api.create(MXJOB, way.namespace, body)
        definitions = {uid_of(item) for item in (await api.list(CRD))["items"]}

        await kubectl(server, tmp_path, *way.uninstall, stdin=operator)

        assert not (await api.list(DEPLOYMENT, way.namespace))["items"]
        assert uid_of(await api.get(MXJOB, way.namespace, "job")) == uid_of(job)
        assert {uid_of(item) for item in (await api.list(CRD))["items"]} == definitions
        again = way.install[-1] if name == "kustomize" else ("create", *way.uninstall[1:])
        await kubectl(server, tmp_path, *again, stdin=operator)
        assert uid_of(await api.get(MXJOB, way.namespace, "job")) == uid_of(job)
