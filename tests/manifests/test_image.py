"""The image's file set, assembled by the Dockerfile's own script, serves a real API server as the image's user.

No container is built: the operator is a process of that user, who owns nothing and can write nowhere in the file set.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import free_ports
from tests.support.waiting import SLOW_PAUSE, until
from tools.generate_manifests import ROOT
from trainyard.app.install.installation import USER, Install, access, definitions, namespace
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.local import kubeconfig
from trainyard.cli.install_manifests import to_yaml

pytestmark = [pytest.mark.cluster, pytest.mark.network, pytest.mark.slow]

PYTHON = next(path for path in ("/usr/bin/python3", sys.executable) if Path(path).exists())
WHO: dict[str, Any] = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """What `COPY --from=build` takes, in a place that every user can read."""
    place = Path(tempfile.mkdtemp(prefix="image-"))
    place.chmod(0o755)
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("src", "requirements", "tools/image"):
        shutil.copytree(ROOT / name, place / "sources" / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, place / "sources")
    target = place / "opt"
    script = ["sh", "tools/image/assemble.sh", str(target), PYTHON]
    subprocess.run(script, cwd=place / "sources", check=True, umask=0o022)
    yield target
    shutil.rmtree(place)


def test_the_dockerfile_copies_the_files_that_the_build_reads() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.M)
    assert {part for line in copied for part in line.split()} == {
        *("pyproject.toml", "README.md", "requirements", "tools/image", "src"),
    }
    assert "RUN sh tools/image/assemble.sh /opt/trainyard" in text and f"USER {USER}:{USER}" in text


LEASE_NAME = "trainyard-elasticjob-mxjob-tfjob"


def test_the_operator_of_the_image_is_ready_and_stops(image: Path) -> None:
    install = Install()
    with ControlPlane() as plane:
        plane.kubectl(
            "apply", "-f", "-", stdin=to_yaml([*definitions(install.kinds), namespace(install), *access(install)])
        )
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        account = f"/api/v1/namespaces/{install.namespace}/serviceaccounts/{install.names.operator}/token"
        code, answer = plane.ask("POST", account, {"spec": {"expirationSeconds": 3600}})
        assert code == 201, answer
        (port,) = free_ports(1)
        token, authority = answer["status"]["token"], read_kubeconfig([plane.kubeconfig]).ca.decode()
        config = image.parent / "kubeconfig"
        config.write_text(yaml.safe_dump(kubeconfig(plane.url, token, authority)))
        config.chmod(0o644)
        arguments = [
            "operator",
            "--kubeconfig",
            str(config),
            "--leader-elect",
            f"--metrics-bind-address=127.0.0.1:{port}",
        ]
        env = {
            "PATH": f"{image}/bin",
            "HOME": "/nonexistent",
            "MY_POD_NAMESPACE": install.namespace,
            "MY_POD_NAME": "a",
        }
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        process = subprocess.Popen(
            ["trainyard", *arguments], env=env, cwd="/", executable=f"{image}/bin/trainyard", **WHO
        )
        try:
            ready(process, port)
            # Ready is also who waits for the lease.
            plane.wait_for(f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{LEASE_NAME}")
        finally:
            process.terminate()
        assert process.wait(10) == 0
        lease = plane.kubectl("get", "lease", "-n", "default", LEASE_NAME, "-o", "yaml")
        assert not yaml.safe_load(lease)["spec"].get("holderIdentity"), lease


def ready(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until /readyz succeeds."""

    def status() -> int:
        assert process.poll() is None
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/readyz")
            return connection.getresponse().status

    until(status, "it is ready", accept=lambda code: code == 200, retry_on=OSError, pause=SLOW_PAUSE)
