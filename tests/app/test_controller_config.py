from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.app.config import PS_SERVER, ConfigError, parse_config, read_config

GPU = """
grpcServerFilePath: /opt/mlkube/grpc_tensorflow_server/grpc_tensorflow_server.py
accelerators:
  alpha.kubernetes.io/nvidia-gpu:
    volumes:
      - {name: lib, mountPath: /usr/lib/nvidia, hostPath: /usr/lib/nvidia-384}
    envVars:
      - {name: LD_LIBRARY_PATH, value: "/usr/lib/nvidia:/usr/lib/x86_64-linux-gnu"}
      - {name: DEBUG, value: 1}
      - {name: VERBOSE, value: yes}
"""


def test_the_documented_config_file_is_parsed_and_numbers_become_strings() -> None:
    parsed = parse_config(GPU, "c.yaml")
    gpu = parsed.accelerators["alpha.kubernetes.io/nvidia-gpu"]
    assert gpu["volumes"] == [{"name": "lib", "mountPath": "/usr/lib/nvidia", "hostPath": "/usr/lib/nvidia-384"}]
    assert gpu["envVars"][1:] == [{"name": "DEBUG", "value": "1"}, {"name": "VERBOSE", "value": "true"}]
    assert not parsed.warnings


def test_the_config_map_of_the_readme_may_be_named_instead_of_the_file() -> None:
    indented = GPU.replace("\n", "\n    ")
    text = f"apiVersion: v1\nkind: ConfigMap\ndata:\n  controller_config_file.yaml: |{indented}\n"
    assert parse_config(text, "c.yaml").accelerators == parse_config(GPU, "c.yaml").accelerators


def test_an_empty_file_is_the_empty_config() -> None:
    assert parse_config("", "c.yaml").accelerators == {}


def test_unknown_keys_are_warned_about_and_left_out() -> None:
    text = "speed: 3\naccelerators:\n  gpu:\n    colour: red\n    envVars: [{name: A, value: b, extra: c}]\n"
    parsed = parse_config(text, "c.yaml")
    assert [warning.path for warning in parsed.warnings] == [
        "speed",
        "accelerators[gpu].colour",
        "accelerators[gpu].envVars[0].extra",
    ]
    assert parsed.accelerators == {"gpu": {"envVars": [{"name": "A", "value": "b"}]}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("- 1\n", "c.yaml:1: document: is not a mapping"),
        ("accelerators: 3\n", "accelerators: is not a mapping"),
        ("accelerators: {gpu: [1]}\n", "accelerators[gpu]: is not a mapping"),
        (
            "accelerators:\n  example.com/gpu:\n    volumes: x\n",
            "c.yaml:3: accelerators[example.com/gpu].volumes: is not a list",
        ),
        ("accelerators: {gpu: {volumes: [x]}}\n", "accelerators[gpu].volumes[0]: is not a mapping"),
        ("accelerators: {gpu: {volumes: [{name: a}]}}\n", "accelerators[gpu].volumes[0].mountPath: is missing"),
        ("accelerators: {gpu: {envVars: [{name: [a]}]}}\n", "accelerators[gpu].envVars[0].name: is not text"),
        ("grpcServerFilePath: 3\n", "grpcServerFilePath: is not text"),
        ("a: 1\n---\nb: 2\n", "c.yaml:3: document: is a second document"),
        ("a: [\n", "c.yaml"),
        (
            "kind: ConfigMap\ndata:\n  controller_config_file.yaml: |\n    speed: 3\n    grpcServerFilePath: 3\n",
            "c.yaml:2: data[controller_config_file.yaml]: line:2: grpcServerFilePath: is not text",
        ),
        ("kind: ConfigMap\ndata: {}\n", "c.yaml:2: data: has no key controller_config_file.yaml"),
    ],
)
def test_a_wrong_file_names_the_field_and_the_fix(text: str, where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "c.yaml")
    assert where in str(caught.value) and "c.yaml" in str(caught.value)


def test_an_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "missing.yaml", lambda text: None)


def test_a_missing_server_program_is_replaced_by_the_shipped_one_with_a_warning(tmp_path: Path) -> None:
    path, warnings = tmp_path / "c.yaml", list[str]()
    path.write_text(GPU)
    ours = read_config(None, warnings.append).program_files.get(PS_SERVER)
    assert read_config(path, warnings.append).program_files.get(PS_SERVER) == ours
    assert "grpcServerFilePath" in warnings[0]
    program = tmp_path / "server.py"
    program.write_text("pass\n")
    path.write_text(f"grpcServerFilePath: {program}\n")
    assert read_config(path, warnings.append).program_files[PS_SERVER] == "pass\n"
