from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainyard import kinds

JOB = """
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: a}
spec:
  replicaSpecs:
  - tfReplicaType: MASTER
    template: {spec: {containers: [{name: tensorflow, image: x}], restartPolicy: OnFailure}}
"""
HEAVY = ("aiohttp", "trainyard.server", "trainyard.client", "trainyard.node", "trainyard.operator")
LOOK = f"""
import sys
from trainyard.cli import main
try:
    main(sys.argv[1:], prog_name="trainyard")
except SystemExit as ended:
    print(sorted(name for name in sys.modules if name.startswith({HEAVY!r})), ended.code, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "plan FILE",
        "lint FILE",
        "manifests",
        "run --help",
        "run MISSING",
        "up --help",
        "why --help",
        "down --help",
        "scale --help",
    ],
)
def test_commands_without_a_cluster_import_no_server_and_no_http_library(line: str, tmp_path: object) -> None:
    path = f"{tmp_path}/job.yaml"
    with open(path, "w") as file:
        file.write(JOB)
    arguments = [path if argument == "FILE" else argument for argument in line.split()]
    ended = subprocess.run([sys.executable, "-c", LOOK, *arguments], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == ("[] 2" if "MISSING" in arguments else "[] 0")


def test_a_run_without_requests_from_outside_imports_no_http_library(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("image: x", "image: x, command: ['true']"))
    look = LOOK.replace(repr(HEAVY), repr(("aiohttp", "urllib.request", "trainyard.views.diagnosis")))
    command = [sys.executable, "-c", look, "run", "job.yaml"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ended.stderr.splitlines()[-1] == "[] 0"


@pytest.mark.parametrize("command", ["lint", "plan"])
def test_a_command_for_one_manifest_imports_the_module_of_its_kind_alone(command: str, tmp_path: object) -> None:
    path = f"{tmp_path}/job.yaml"
    with open(path, "w") as file:
        file.write(JOB)
    packages = tuple(f"trainyard.kinds.{names.module.removesuffix('.kind')}" for names in kinds.REGISTRY.values())
    look = LOOK.replace(repr(HEAVY), repr(packages))
    ended = subprocess.run([sys.executable, "-c", look, command, path], capture_output=True, text=True, check=True)
    assert ended.stderr.splitlines()[-1] == (
        "['trainyard.kinds.tfjob', 'trainyard.kinds.tfjob.kind', 'trainyard.kinds.tfjob.spec'] 0"
    )


# What a command begins with -> the most modules of Trainyard that it imports. Import a further one when it is used.
LARGEST = {
    "import trainyard.cli.up": 42,
    "from trainyard.cli.command import jobs; jobs.parse_job_reference('a')": 90,
    "from trainyard.page import running_servers": 70,
}


@pytest.mark.parametrize("statement", LARGEST)
def test_a_command_imports_few_modules(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint(*(name for name in sys.modules if name.startswith('trainyard')))"
    names = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    unneeded = {"trainyard.core.decide", "trainyard.kinds.definitions.crds", "trainyard.server"}
    unneeded |= {f"trainyard.kinds.{kind.module}" for kind in kinds.REGISTRY.values()}
    assert unneeded.isdisjoint(names)
    assert len(names) <= LARGEST[statement], sorted(names)


def test_every_command_in_the_list_is_there() -> None:
    import click

    from trainyard.cli.commands import COMMANDS, main

    ctx = click.Context(main)
    assert isinstance(main, click.Group)
    assert [main.get_command(ctx, name).name for name in COMMANDS] == list(COMMANDS)  # type: ignore[union-attr]  # the assertion is that none is None
