"""The command line of Kubeflow's training-operator, given to `trainyard operator`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_operator_command import KUBECONFIG
from trainyard.cli.command import training_operator_flags
from trainyard.cli.operator import _parse_options, operator
from trainyard.objects.manifest import ManifestError

PAGE = Path(__file__).parents[2] / "docs" / "operator.md"

FLAGS = {
    "metrics-bind-address",
    "health-probe-bind-address",
    "leader-elect",
    "leader-election-id",
    "enable-scheme",
    "gang-scheduler-name",
    "namespace",
    "controller-threads",
    "kube-api-qps",
    "kube-api-burst",
    "pytorch-init-container-image",
    "pytorch-init-container-template-file",
    "pytorch-init-container-max-tries",
    "mpi-kubectl-delivery-image",
    "webhook-server-port",
    "webhook-service-name",
    "webhook-secret-name",
    "kubeconfig",
    "zap-devel",
    "zap-encoder",
    "zap-log-level",
    "zap-stacktrace-level",
    "zap-time-encoding",
}
"""The flags that training-operator v1.9.4 prints for --help."""


def parse(*line: str) -> tuple[dict[str, Any], list[str]]:
    return training_operator_flags.apply(operator.make_context("operator", list(line)))


@pytest.mark.parametrize(
    ("line", "parameter", "value"),
    [
        ("--metrics-bind-address=:8080", "bind", ":8080"),
        ("--health-probe-bind-address=:8081", "probe_bind", ":8081"),
        ("--leader-elect", "leader_elect", True),
        ("--leader-elect=true", "leader_elect", True),
        ("-leader-elect=true", "leader_elect", True),
        ("--leader-elect=false", "leader_elect", False),
        ("--gang-scheduler-name=volcano", "gang_scheduler", "volcano"),
        ("-gang-scheduler-name volcano", "gang_scheduler", "volcano"),
        ("--namespace=team", "namespace", "team"),
        ("--enable-scheme=MxJob --enable-scheme=chainerjob", "served", "MxJob,chainerjob"),
        ("--enable-scheme=mxjob --kinds chainerjob", "served", "chainerjob,mxjob"),
        ("--pytorch-init-container-image=registry.example/alpine:3", "init_image", "registry.example/alpine:3"),
        ("--mpi-kubectl-delivery-image=registry.example/kubectl:1", "delivery_image", "registry.example/kubectl:1"),
        ("--pytorch-init-container-max-tries=7", "init_tries", 7),
        ("-pytorch-init-container-template-file=/etc/config/c.yaml", "init_template", "/etc/config/c.yaml"),
        ("--zap-encoder=json", "log_format", "json"),
        ("--zap-encoder=json --log-format text", "log_format", "text"),
        ("--zap-log-level=error", "log_level", "error"),
        ("--zap-log-level=5", "log_level", "debug"),
        ("--zap-log-level=panic", "log_level", "error"),
        ("-n team", "namespace", "team"),
    ],
)
def test_a_flag_with_a_meaning_is_mapped_without_a_warning(line: str, parameter: str, value: object) -> None:
    params, warnings = parse(*line.split())
    assert (params[parameter], warnings) == (value, [])


@pytest.mark.parametrize("name", training_operator_flags.NO_EFFECT)
def test_a_flag_without_an_effect_is_accepted_with_the_reason(name: str) -> None:
    for line in ((f"{name}=7",), (name, "7"), (f"{name[1:]}=7",)):
        params, warnings = parse(*line)
        assert warnings == [f"{name} has no effect: {training_operator_flags.NO_EFFECT[name]}"]
        plain = parse()[0]
        assert {key: value for key, value in params.items() if plain[key] != value}.keys() == {
            name[2:].replace("-", "_")
        }


def test_every_flag_is_accepted_and_in_the_table_of_the_page() -> None:
    names = {name for param in operator.params for name in param.opts}
    assert not [flag for flag in FLAGS if f"--{flag}" not in names]
    rows = re.findall(r"^\| `--([a-z-]+)`", PAGE.read_text().partition("## Flags of the training operator")[2], re.M)
    assert set(rows) == FLAGS


def test_the_namespace_of_kubeflow_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEFLOW_NAMESPACE", "team")
    assert parse()[0]["namespace"] == "team" and parse("--namespace=other")[0]["namespace"] == "other"


def test_the_gang_scheduler_and_the_address_of_the_probes_arrive_in_the_options(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(KUBECONFIG)
    arguments = ("--kubeconfig", str(tmp_path / "k"), "--gang-scheduler-name=volcano")
    parsed = _parse_options(parse(*arguments, "--health-probe-bind-address=:8081")[0])
    assert parsed.probe_bind == ("", 8081) and parsed.configured(parsed.config).gang_scheduler == "volcano"
    with pytest.raises(ManifestError) as refused:
        _parse_options(parse(*arguments, "--health-probe-bind-address=here")[0])
    assert refused.value.problems[0].path == "--health-probe-bind-address"


def test_the_flags_of_the_init_container_arrive_in_the_options(tmp_path: Path) -> None:
    (tmp_path / "k").write_text(KUBECONFIG)
    template = tmp_path / "template.yaml"
    template.write_text("- name: wait\n  image: {{.InitContainerImage}}\n  args: ['{{ .MaxTries }}']\n")
    words = ["--kubeconfig", str(tmp_path / "k"), "--pytorch-init-container-max-tries=7"]
    words += [
        "--mpi-kubectl-delivery-image=k",
        "--pytorch-init-container-image=i",
        f"--pytorch-init-container-template-file={template}",
    ]
    parsed = _parse_options(parse(*words)[0])
    assert parsed.configured(parsed.config).kubectl_delivery_image == "k"
    settings = parsed.configured(parsed.config).master_wait
    assert (settings.image, settings.max_tries, settings.containers[0]["args"]) == ("i", 7, ["7"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- name: {{if .Debug}}x{{end}}", "write only {{.MasterAddr}}, {{.InitContainerImage}}, {{.MaxTries}}"),
        ("- name: '{{.Nothing}}'", "write only"),
        ("name: x", "is not one YAML list of containers, each with a name"),
        ("- image: x", "is not one YAML list"),
        ("- name: [", "cannot be read as YAML"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_at_the_start(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "k").write_text(KUBECONFIG)
    (tmp_path / "t").write_text(text)
    words = ("--kubeconfig", str(tmp_path / "k"), f"--pytorch-init-container-template-file={tmp_path / 't'}")
    with pytest.raises(ManifestError) as refused:
        _parse_options(parse(*words)[0])
    assert problem in str(refused.value.problems[0]) and str(tmp_path / "t") in str(refused.value.problems[0])


def test_a_template_file_that_is_missing_is_as_good_as_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is mounted from a ConfigMap, which the manifests of the training operator do not have."""
    params = parse(f"--pytorch-init-container-template-file={tmp_path / 'none'}")[0]
    assert training_operator_flags.master_wait(params).containers == ()
    assert "does not exist, so it has no effect" in caplog.text


def test_the_process_warns_in_its_log(tmp_path: Path) -> None:
    arguments = ["--webhook-server-port=9443", "--zap-encoder=json", "--enable-scheme=nothing"]
    (tmp_path / "k").write_text(KUBECONFIG)
    line = [sys.executable, "-m", "trainyard", "operator", "--kubeconfig", str(tmp_path / "k"), *arguments]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 2 and "'nothing' is not a kind of job" in ended.stderr
    assert '"message":"--webhook-server-port has no effect: there is no webhook' in ended.stderr.replace('": "', '":"')
