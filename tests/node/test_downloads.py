"""Pods reach the outside world, in both networks: they download from the package index that this machine uses."""

from __future__ import annotations

import pytest

from tests.node.node_cluster import NodeCluster

SCRIPT = """
import pathlib, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    pip = [sys.executable, '-m', 'pip', 'download', '-q', '--no-cache-dir', '--no-deps']
    command = [*pip, '-d', folder, 'six==1.17.0']
    print(subprocess.run(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True).stdout, end='')
    print(*(path.name for path in pathlib.Path(folder).iterdir()))
"""


@pytest.mark.network
async def test_a_pod_downloads_from_a_package_index(cluster: NodeCluster) -> None:
    await cluster.pod("downloads", SCRIPT)
    assert (await cluster.result("downloads")).splitlines()[-1:] == ["six-1.17.0-py2.py3-none-any.whl"]
