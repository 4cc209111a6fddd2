"""The options of `trainyard node` that are refused before any request."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from trainyard.cli.node import _resource, _taint, node
from trainyard.objects.manifest import ManifestError


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "--kubeconfig: name the kubeconfig of the cluster to join, or set $KUBECONFIG"),
        (["--kubeconfig", "nowhere"], "nowhere: no such file"),
        (["--kubeconfig", "k", "--name", "My_Laptop"], "--name: 'My_Laptop' is not a name of a node; write lower-case"),
        (["--kubeconfig", "k", "--capacity", "gpu"], "--capacity: 'gpu' is not RESOURCE=N"),
        (["--kubeconfig", "k", "--taint", "a=b"], "--taint: 'a=b' is not KEY=VALUE:EFFECT"),
        (["--kubeconfig", "k", "--tls-cert-file", "c"], "--tls-cert-file: needs --tls-private-key-file"),
        (["--kubeconfig", "k", "--mount", "x"], "--mount: 'x' is not CLAIM=DIR"),
    ],
)
def test_an_invalid_option_is_reported_with_the_fix(
    line: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    result = CliRunner().invoke(node, line)
    assert result.exit_code == 2 and message in result.output


def test_a_taint_and_a_resource_are_read() -> None:
    assert _taint("a.b/c=d:NoExecute") == {"key": "a.b/c", "value": "d", "effect": "NoExecute"}
    assert _taint("a:NoSchedule") == {"key": "a", "effect": "NoSchedule"}
    assert _resource("nvidia.com/gpu=4") == ("nvidia.com/gpu", "4")
    with pytest.raises(ManifestError):
        _taint("a=b:Sometimes")
