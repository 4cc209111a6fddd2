"""The manifest for each framework: as expected, taken by admission, `lint` and `plan`, and the same when read back.

The expected ones are testdata/scripts/CASE.yaml; `pytest --update` writes them anew.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.cli.script_values import program_job, script
from trainyard import kinds
from trainyard.cli.command import manifests
from trainyard.cli.init import init
from trainyard.cli.lint import lint
from trainyard.cli.plan import plan
from trainyard.cli.run import run
from trainyard.cli.scripts.command_line import ProgramArguments
from trainyard.cli.scripts.frameworks import FRAMEWORKS
from trainyard.cli.scripts.job_maker import misplaced_option
from trainyard.cli.scripts.launchers import launcher_of
from trainyard.cli.scripts.program import program_of
from trainyard.cli.session import submission
from trainyard.objects import Json, templates_of
from trainyard.objects.labels import WORKING_DIRECTORY
from trainyard.objects.manifest import read

DATA = Path(__file__).parents[2] / "testdata" / "scripts"
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "plain-of-three": {"workers": 3, "env": ("A=1", "EMPTY=")},
    "torch": {"framework": "torch"},
    "torch-of-three": {"framework": "torch", "workers": 3, "nproc": 2},
    "torch-elastic": {"framework": "torch", "workers": 2, "nproc": 4, "least": 1, "most": 3},
    "tensorflow": {"framework": "tensorflow"},
    "tensorflow-with-ps": {"framework": "tensorflow", "workers": 3, "ps": 2, "image": "example.com/train:1"},
    "tensorflow-of-two": {"framework": "tensorflow", "workers": 2},
    "xgboost-of-two": {"framework": "xgboost", "workers": 2},
    "jax-of-two": {"framework": "jax", "workers": 2},
    "mxnet": {"framework": "mxnet"},
    "mxnet-dist": {"framework": "mxnet", "workers": 2, "ps": 2},
    "mxnet-dist-of-two": {"framework": "mxnet", "workers": 2},
    "chainer": {"framework": "chainer"},
    "chainer-of-two": {"framework": "chainer", "workers": 2},
    "mpi4py-of-two": {"framework": "mpi4py", "workers": 2, "nproc": 2},
    "mpi4py-in-one-pod": {"framework": "mpi4py", "nproc": 2, "mounts": ("/:/machine",)},
}
CHILDREN = {
    "plain-of-three": ["Pod"] * 3 + ["Service"] * 3,
    "torch-elastic": ["Pod"] * 2 + ["Service"] * 2,
    "torch-of-three": ["Pod"] * 3 + ["Service"] * 3,
    "tensorflow-with-ps": ["Pod"] * 5 + ["Service"] * 5,
    "xgboost-of-two": ["Pod"] * 2 + ["Service"] * 2,
    "mxnet": ["Job"],
    "mxnet-dist": ["Job"] * 5 + ["Service"],
    "mpi4py-of-two": ["ConfigMap", "Pod", "Pod", "Pod", "Role", "RoleBinding", "ServiceAccount"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script(tmp_path)
    return tmp_path


def text_of(case: str) -> str:
    return program_job("train.py", "--lr", "3", **CASES[case]).manifest_yaml(Path("train.yaml"))


every_case = pytest.mark.parametrize("case", CASES)


@every_case
def test_the_manifest_is_the_expected_one(case: str, request: pytest.FixtureRequest) -> None:
    expected = DATA / f"{case}.yaml"
    if request.config.getoption("--update"):
        expected.write_text(text_of(case))
    assert text_of(case) == expected.read_text()


@every_case
def test_a_manifest_round_trips_through_yaml(case: str) -> None:
    (document,) = read(text_of(case), "train.yaml")
    assert document.obj == program_job("train.py", "--lr", "3", **CASES[case]).job


@every_case
def test_a_manifest_fits_a_screen(case: str) -> None:
    assert max(map(len, text_of(case).splitlines())) <= 100


@every_case
def test_admission_lint_and_plan_accept_it_without_a_warning(case: str) -> None:
    Path("train.yaml").write_text(text_of(case))
    (document,) = manifests.load(["train.yaml"])
    kind = kinds.kind_of(document.obj)
    assert kind and manifests.admit(document, kind)[1] == []
    checked = CliRunner().invoke(lint, ["train.yaml"])
    assert (checked.exit_code, checked.output) == (0, "1 job, no problem, 0 warnings\n")
    planned = CliRunner().invoke(plan, ["train.yaml"])
    assert planned.exit_code == 0
    created = sorted(create["kind"] for create in yaml.safe_load(planned.output)["creates"])
    assert created == CHILDREN.get(case, created) and created


def test_every_framework_has_an_expected_manifest() -> None:
    assert set(FRAMEWORKS) == {"plain", *(case.get("framework", "plain") for case in CASES.values())}
    assert {path.stem for path in DATA.glob("*.yaml")} == set(CASES)


def container(job: Json) -> Json:
    _, template = next(templates_of(job["spec"], "spec"))
    container: Json = template["spec"]["containers"][0]
    return container


@pytest.mark.parametrize(
    ("text", "stored"),
    [("a b", "a b"), ("$HOME", "$HOME"), ("$(A)", "$$(A)"), ("$$", "$$$$"), ("it's: #1\n", "it's: #1\n"), ("", "")],
)
def test_arguments_and_variables_arrive_unchanged(text: str, stored: str) -> None:
    job = program_job("train.py", text, env=(f"V={text}",)).job
    assert container(job)["command"] == ["python", "train.py", stored]
    assert container(job)["env"][-1] == {"name": "V", "value": stored}
    (document,) = read(program_job("train.py", text, env=(f"V={text}",)).manifest_yaml(Path("x.yaml")), "x.yaml")
    assert document.obj == job


def test_an_env_option_without_a_value_takes_the_shells_and_overrides_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    env = container(program_job("train.py", env=("SECRET_TOKEN", "MASTER_PORT=1")).job)["env"]
    assert [variable for variable in env if variable["name"] in ("SECRET_TOKEN", "MASTER_PORT")] == [
        {"name": "MASTER_PORT", "value": "1"},
        {"name": "SECRET_TOKEN", "value": "abc"},
    ]


@pytest.mark.parametrize(
    ("form", "target", "command", "torchrun"),
    [
        ("script", "train.py", ["python", "train.py", "1"], ["train.py", "1"]),
        ("script", "go", ["./go", "1"], ["--no-python", "./go", "1"]),
        ("script", "words", ["/bin/sh", "-e", "words", "1"], ["--no-python", "/bin/sh", "-e", "words", "1"]),
        ("module", "pack.train", ["python", "-m", "pack.train", "1"], ["--module", "pack.train", "1"]),
        ("command", "ls", ["ls", "1"], ["--no-python", "ls", "1"]),
    ],
)
def test_the_command_of_each_framework(form: str, target: str, command: list[str], torchrun: list[str]) -> None:
    script(Path(), "#!/bin/sh\n", "go").chmod(0o755)
    script(Path(), "#!/bin/sh -e\n", "words").chmod(0o644)
    assert container(program_job(target, "1", form=form).job)["command"] == command
    started = container(program_job(target, "1", form=form, framework="torch").job)
    assert started["command"] == ["python", "-m", "torch.distributed.run"]
    assert started["args"] == torchrun


@every_case
def test_a_cluster_elsewhere_cannot_pull_the_image_of_this_machine(case: str) -> None:
    Path("train.yaml").write_text(text_of(case))
    assert submission.read(["train.yaml"], local=True).warnings == []
    warning_texts = submission.read(["train.yaml"], local=False).warnings
    if "image" in CASES[case]:
        assert warning_texts == []
    else:
        (text,) = warning_texts
        assert text.startswith("train.yaml:") and "trainyard/local" in text and "--image NAME" in text


@pytest.mark.parametrize("file", ["pack/train.py", "pack/train/__main__.py"])
def test_the_framework_of_a_module_is_guessed_from_its_file(file: str) -> None:
    script(Path(), "import jax", file)
    assert program_job("pack.train", form="module").framework == "jax"


def test_the_working_directory_is_written_down_only_for_a_file_in_another_folder(folder: Path) -> None:
    for name in ("here.yaml", "sub/there.yaml"):
        (folder / name).parent.mkdir(exist_ok=True)
        result = CliRunner().invoke(run, ["--dry-run", "--save", name, "train.py"])
        assert result.exit_code == 0, result.output
        assert WORKING_DIRECTORY not in result.stdout
    here, there = (yaml.safe_load((folder / name).read_text())["metadata"] for name in ("here.yaml", "sub/there.yaml"))
    assert here == {"name": "train"}
    assert there == {"name": "train", "annotations": {WORKING_DIRECTORY: str(folder)}}


def test_a_dry_run_in_another_folder_prints_where_the_script_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sub").mkdir()
    monkeypatch.chdir(folder / "sub")
    for form, loads in (("yaml", yaml.safe_load), ("json", yaml.safe_load)):
        result = CliRunner().invoke(run, ["--dry-run", "-o", form, os.path.join("..", "train.py")])
        assert loads(result.stdout)["metadata"]["annotations"] == {WORKING_DIRECTORY: str(folder)}


def test_init_and_save_write_the_same_with_comments(folder: Path) -> None:
    assert CliRunner().invoke(init, ["--workers", "2", "train.py", "1"]).exit_code == 0
    saved = CliRunner().invoke(run, ["--dry-run", "--save", "saved.yaml", "--workers", "2", "train.py", "1"])
    assert saved.exit_code == 0
    text = (folder / "train.yaml").read_text()
    assert (folder / "saved.yaml").read_text() == text.replace("train.yaml", "saved.yaml")
    assert "# On a cluster: an image that holds the program" in text
    assert "# On a cluster: an image" in CliRunner().invoke(init, ["-o", "-", "train.py"]).stdout


def test_a_local_container_without_a_command_is_a_problem(folder: Path) -> None:
    job = yaml.safe_load((DATA / "plain.yaml").read_text())
    container = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container.pop("command"), container.pop("args", None)
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    ended = CliRunner().invoke(lint, ["job.yaml"])
    assert ended.exit_code == 2
    assert "containers[0].command" in ended.output and "has no program of its own" in " ".join(ended.output.split())


LAUNCHED: list[tuple[str, dict[str, Any], str, list[str], str]] = [
    # command, options, framework, command of the container, and what a line says
    ("torchrun train.py 1", {}, "torch", ["python", "-m", "torch.distributed.run", "train.py", "1"], ""),
    (
        "python3 -u -m torch.distributed.run --nproc_per_node=2 train.py",
        {},
        "torch",
        ["python3", "-u", "-m", "torch.distributed.run", "--nproc_per_node=2", "train.py"],
        "",
    ),
    (
        "torchrun --standalone train.py",
        {},
        "torch",
        ["python", "-m", "torch.distributed.run", "--standalone", "train.py"],
        "with --standalone each of the 2 workers trains alone: leave it out, and they train together",
    ),
    (
        "torchrun --nnodes 3 train.py",
        {},
        "torch",
        ["python", "-m", "torch.distributed.run", "--nnodes", "3", "train.py"],
        "with --nnodes 3 torchrun waits for 3 workers, and the job has 2: write --workers 3, or leave it out",
    ),
    (
        "accelerate launch train.py --lr 3",
        {},
        "torch",
        ["accelerate", "launch", "train.py", "--lr", "3"],
        "accelerate launch starts a training of its own in each of the 2 workers: write "
        "`trainyard run --workers 2 train.py --lr 3`, which torchrun starts in all of them",
    ),
    (
        "deepspeed train.py",
        {},
        "torch",
        ["deepspeed", "train.py"],
        "deepspeed starts a training of its own in each of the 2 workers: write "
        "`trainyard run --workers 2 train.py`, which torchrun starts in all of them",
    ),
    (
        "accelerate launch -m pack.train --nnodes 3",
        {},
        "torch",
        ["accelerate", "launch", "-m", "pack.train", "--nnodes", "3"],
        "accelerate launch starts a training of its own in each of the 2 workers: write "
        "`trainyard run --workers 2 -m pack.train --nnodes 3`, which torchrun starts in all of them",
    ),
    (
        "torchrun -m pack.train --nnodes 3",  # an option of the program
        {},
        "torch",
        ["python", "-m", "torch.distributed.run", "-m", "pack.train", "--nnodes", "3"],
        "",
    ),
    ("deepspeed --hostfile hosts train.py", {}, "torch", ["deepspeed", "--hostfile", "hosts", "train.py"], ""),
    ("mpirun -n 4 python train.py", {}, "mpi4py", ["mpirun", "-n", "4", "python", "train.py"], ""),
    (
        "/usr/bin/mpiexec -n 2 python train.py",
        {"framework": "chainer"},
        "chainer",
        ["/usr/bin/mpiexec", "-n", "2", "python", "train.py"],
        "",
    ),
    (
        "uv run --with torch --no-sync -p3.12 torchrun --nproc-per-node 2 train.py",
        {},
        "torch",
        ["uv", "run", "--with", "torch", "--no-sync", "-p3.12", "torchrun", "--nproc-per-node", "2", "train.py"],
        "",
    ),
    (
        "uv --directory code run --extra=gpu -- python -m torch.distributed.run --standalone train.py",
        {},
        "torch",
        [
            "uv",
            "--directory",
            "code",
            "run",
            "--extra=gpu",
            "--",
            "python",
            "-m",
            "torch.distributed.run",
            "--standalone",
            "train.py",
        ],
        "with --standalone each of the 2 workers trains alone: leave it out, and they train together",
    ),
    (
        "uv run -m torch.distributed.run train.py",
        {},
        "torch",
        ["uv", "run", "-m", "torch.distributed.run", "train.py"],
        "",
    ),
    (
        "uv run --with deepspeed accelerate launch train.py --lr 3",
        {},
        "torch",
        ["uv", "run", "--with", "deepspeed", "accelerate", "launch", "train.py", "--lr", "3"],
        "accelerate launch starts a training of its own in each of the 2 workers: write `trainyard run --workers 2 "
        "-- uv run --with deepspeed torchrun train.py --lr 3`, which torchrun starts in all of them",
    ),
    (
        "uv run -m accelerate.commands.launch -m pack.train",
        {},
        "torch",
        ["uv", "run", "-m", "accelerate.commands.launch", "-m", "pack.train"],
        "accelerate launch starts a training of its own in each of the 2 workers: write `trainyard run --workers 2 "
        "-- uv run torchrun -m pack.train`, which torchrun starts in all of them",
    ),
    ("torchrun train.py", {"framework": "plain"}, "plain", ["python", "-m", "torch.distributed.run", "train.py"], ""),
    ("python train.py", {}, "plain", ["python", "train.py"], ""),
]


def test_the_options_of_uv_are_no_misplaced_ones_of_trainyard() -> None:
    words = ("run", "--python", "3.12", "torchrun", "--workers", "2", "train.py")
    assert [misplaced(words[:count]) for count in (4, 7)] == ["", "--workers"]


def misplaced(words: tuple[str, ...]) -> str:
    arguments = ProgramArguments("command", "uv", words)
    return misplaced_option(arguments, program_of(arguments))


NO_LAUNCHER = ("uv", "uv run", "uv run --with deepspeed train.py", "uv pip install torchrun", "uv run --with torchrun")


@pytest.mark.parametrize("line", NO_LAUNCHER)
def test_what_uv_installs_or_runs_is_no_launcher(line: str) -> None:
    assert launcher_of(tuple(line.split())) is None


@pytest.mark.parametrize(("line", "options", "framework", "command", "warning"), LAUNCHED)
def test_a_command_that_begins_with_a_launcher_is_of_its_framework(
    line: str, options: dict[str, Any], framework: str, command: list[str], warning: str
) -> None:
    target, *arguments = line.split()
    program = program_job(target, *arguments, form="command", workers=2, **options)
    assert program.framework == framework
    assert program.job["metadata"]["name"] == ("python" if command == ["python", "train.py"] else "train")
    assert container(program.job).get("command") == command and "args" not in container(program.job)
    assert program.warnings == ((warning,) if warning else ())
    assert ("its launcher is" in program.note) is (framework != "plain" and not options)


def test_a_launcher_in_a_shell_script_decides_on_its_framework() -> None:
    text = "#!/bin/bash\nset -eu\nOMP_NUM_THREADS=1 exec torchrun \\\n  --standalone train.py\n"
    script(Path(), text, "go.sh").chmod(0o755)
    program = program_job("go.sh", workers=2)
    assert program.note == "go.sh: runs as torch: its launcher is torchrun (--framework changes it)"
    assert container(program.job)["command"] == ["./go.sh"] and len(program.warnings) == 1


@pytest.mark.parametrize(
    ("line", "options", "field", "processes"),
    [
        ("torchrun --nproc-per-node 2 train.py", {}, "nprocPerNode", "2"),
        ("torchrun --nproc-per-node=auto train.py", {"nproc": 3}, "nprocPerNode", "3"),
        ("mpirun -np 3 python train.py", {}, "slotsPerWorker", 2),
        ("mpirun python train.py", {"nproc": 4}, "slotsPerWorker", 4),
    ],
)
def test_the_number_of_processes_is_that_of_the_launcher(
    line: str, options: dict[str, Any], field: str, processes: object
) -> None:
    target, *arguments = line.split()
    assert program_job(target, *arguments, form="command", workers=2, **options).job["spec"][field] == processes
