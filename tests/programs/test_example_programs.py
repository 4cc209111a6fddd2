"""The programs of MxJob, ChainerJob and ElasticJob as far as they need no framework: words, shares, the launcher."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from trainyard.node.images.catalogue import PROGRAMS


@pytest.fixture(autouse=True)
def pythonpath(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our programs are no package: they find each other as neighbours. What they import of numpy is not called here."""
    monkeypatch.syspath_prepend(str(PROGRAMS))
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))


def program(name: str) -> Any:
    return import_module(name)


def test_the_namespace_of_the_mxnet_readme_is_parsed() -> None:
    mx = program("mx_cifar10")
    arguments = [
        "--num-epochs=10",
        "--gpus=0",
        "--model-prefix=./wltest",
        "--num-layers=2",
        "--kv-store=dist_device_sync",
    ]
    args = vars(mx.parser().parse_args(arguments))
    printed = {
        "batch_size": 128, "benchmark": 0, "data_nthreads": 4, "data_train": "data/cifar10_train.rec",
        "data_val": "data/cifar10_val.rec", "disp_batches": 20, "dtype": "float32", "image_shape": "3,28,28",
        "kv_store": "dist_device_sync", "load_epoch": None, "lr": 0.05, "lr_factor": 0.1, "lr_step_epochs": "200,250",
        "max_random_aspect_ratio": 0, "max_random_h": 36, "max_random_l": 50, "max_random_rotate_angle": 0,
        "max_random_s": 50, "max_random_scale": 1, "max_random_shear_ratio": 0, "min_random_scale": 1,
        "model_prefix": "./wltest", "mom": 0.9, "monitor": 0, "network": "resnet", "num_classes": 10, "num_epochs": 10,
        "num_layers": 2, "optimizer": "sgd", "pad_size": 4, "random_crop": 1, "random_mirror": 1,
        "rgb_mean": "123.68,116.779,103.939", "test_io": 0, "top_k": 0, "wd": 0.0001,
    }  # fmt: skip
    assert {name: args[name] for name in printed} == printed
    assert args.keys() - printed.keys() == {"gpus", "num_examples"}


@pytest.mark.parametrize(
    ("arguments", "role", "expected_message"),
    [
        (["--kv-store=dist_sync"], "", "--kv-store=dist_sync needs a dist job: DMLC_ROLE is not set"),
        (["--image-shape=big"], "", "--image-shape=big is no list of three numbers"),
        (["--image-shape=1,28,28"], "", "3 channels"),
        (["--num-classes=2"], "", "10 classes"),
        (["--num-examples=7"], "", "must hold at least one batch of --batch-size=128"),
        (["--kv-store=dist_sync"], "worker", ""),
        ([], "", ""),
    ],
)
def test_invalid_training_arguments_are_reported_in_one_sentence(
    arguments: list[str], role: str, expected_message: str
) -> None:
    mx = program("mx_cifar10")
    problem = mx.problem(mx.parser().parse_args(arguments), role)
    assert expected_message in problem and bool(expected_message) == bool(problem)


def test_workers_get_equal_parts_of_whole_batches() -> None:
    mx = program("mx_cifar10")
    args = mx.parser().parse_args([])
    assert [mx.worker_range(args, rank, 3) for rank in range(3)] == [(0, 3200), (3200, 6400), (6400, 9600)]
    args = mx.parser().parse_args(["--num-examples=200", "--batch-size=100"])
    assert [mx.worker_range(args, rank, 3) for rank in range(3)] == [(0, 100), (100, 200), (200, 300)]


def test_a_job_on_this_machine_meets_on_the_loopback_and_a_late_name_is_left_to_mxnet() -> None:
    mx = program("mx_cifar10")
    for root, host in (("127.0.0.1", "127.0.0.1"), ("no-such-host.invalid", None)):
        environ = {"DMLC_PS_ROOT_URI": root}
        mx.set_own_address(environ)
        assert environ.get("DMLC_NODE_HOST") == host
    environ = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_NODE_HOST": "mine"}
    mx.set_own_address(environ)
    assert environ["DMLC_NODE_HOST"] == "mine"


def test_the_arguments_of_both_chainer_readmes_are_accepted() -> None:
    chainer = program("chainer_mnist")
    args = chainer.parser(mpi=True).parse_args(["-e", "2", "-b", "1000", "-u", "100"])
    assert (args.epoch, args.batchsize, args.unit, args.communicator, args.gpu) == (2, 1000, 100, "hierarchical", False)
    args = chainer.parser(mpi=False).parse_args(["-e", "2", "-b", "1000", "-u", "100", "--noplot", "-g", "0"])
    assert (args.gpu, args.noplot) == ("0", True) and not chainer.problem(args)
    args.batchsize = 0
    assert chainer.problem(args) == "--batchsize=0 must be at least 1"


def test_the_table_is_printed_without_terminal_codes(capsys: pytest.CaptureFixture[str]) -> None:
    out = program("chainer_mnist").WithoutControlCodes(sys.stdout)
    out.write("\033[Jepoch       main/loss\n")
    out.flush()
    assert capsys.readouterr().out == "epoch       main/loss\n"


def test_the_arguments_of_the_first_sample_are_accepted() -> None:
    imagenet = program("elastic_imagenet")
    arguments = [
        "--arch=resnet18",
        "--epochs=20",
        "--batch-size=32",
        "--workers=0",
        "/workspace/data/tiny-imagenet-200",
    ]
    args = imagenet.parser().parse_args(arguments)
    assert (args.arch, args.epochs, args.batch_size, args.data) == ("resnet18", 20, 32, arguments[-1])
    assert args.checkpoint_file == "/tmp/checkpoint.pth.tar" and not imagenet.problem(args)
    assert [imagenet.depth(arch) for arch in ("resnet18", "resnet50", "vgg")] == [18, 50, 18]
    args.batch_size = 0
    assert imagenet.problem(args) == "--batch-size=0 must be at least 1"


def test_the_shipped_and_a_users_configuration_select_the_training() -> None:
    classy = program("elastic_classy")
    shipped = classy.course(json.loads((PROGRAMS / "classy_template.json").read_text()), 2048)
    assert (shipped.epochs, shipped.batch, shipped.lr, shipped.depth) == (8, 32, 0.02, 18)
    mine = {"num_epochs": 3, "optimizer": {"lr": {"name": "step", "values": [0.5, 0.1]}}, "model": {"depth": 50}}
    course = classy.course(mine, 100)
    assert (course.epochs, course.lr, course.depth, course.pictures) == (3, 0.5, 50, 100)


@pytest.mark.parametrize("config", [[], {"num_epochs": "many"}, {"optimizer": 3}, {"dataset": {"train": 7}}])
def test_an_unsupported_configuration_is_refused(config: object) -> None:
    with pytest.raises(ValueError, match=r"no JSON object|not as expected"):
        program("elastic_classy").course(config, 100)


def test_the_default_checkpoint_is_in_the_temporary_folder_of_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pods of one machine share /tmp: a checkpoint there would be overwritten by the other."""
    own = program("elastic_train").checkpoint_path
    monkeypatch.setattr(tempfile, "tempdir", "/pod-tmp")
    assert own("/tmp/checkpoint.pth.tar") == "/pod-tmp/checkpoint.pth.tar"
    assert own("/data/mine.tar") == "/data/mine.tar"


# --- The launcher ---------------------------------------------------------------------------------------------------

CONTROLLER = ["--rdzv_backend=etcd", "--rdzv_endpoint=etcd-service:2379", "--rdzv_id=imagenet", "--nnodes=1:2"]


def test_the_launcher_waits_for_its_etcd() -> None:
    launch = program("torchelastic.distributed.launch")
    etcd = {"PET_RDZV_BACKEND": "etcd"}
    assert launch.endpoint([*CONTROLLER, "main.py"], {}) == ("etcd-service", 2379)
    assert launch.endpoint(["--rdzv-endpoint", "a:1", "main.py"], etcd) == ("a", 1)
    assert launch.endpoint(["main.py"], {**etcd, "PET_RDZV_ENDPOINT": "[::1]:5"}) == ("::1", 5)
    assert launch.endpoint(["--rdzv_endpoint=alone"], etcd) == ("alone", 2379)
    assert launch.endpoint(["--standalone", *CONTROLLER], etcd) is None
    assert launch.endpoint(["--rdzv_backend=c10d", "--rdzv_endpoint=a:1"], etcd) is None
    assert launch.endpoint([], etcd) is None


def test_the_old_defaults_apply_unless_a_variable_overrides_them() -> None:
    environ = {"PET_MAX_RESTARTS": "3"}
    program("torchelastic.distributed.launch").set_defaults(environ)
    assert environ["PET_MAX_RESTARTS"] == "3"
    assert (environ["PET_RDZV_BACKEND"], environ["PET_NPROC_PER_NODE"]) == ("etcd", "auto")


def test_an_etcd_that_never_starts_is_reported_by_torch(capsys: pytest.CaptureFixture[str]) -> None:
    launch = program("torchelastic.distributed.launch")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        launch.wait_for_etcd(("127.0.0.1", port), patience=0.05, pause=0.01)
        output = capsys.readouterr().out
        assert output.count("waiting for the rendezvous at 127.0.0.1:") == 1
        taken.listen()
        launch.wait_for_etcd(("127.0.0.1", port))
        assert capsys.readouterr().out == ""


def test_a_redirection_without_streams_is_repaired_for_this_torch() -> None:
    class Std:
        NONE = "none"

        @classmethod
        def from_str(cls, text: str) -> str | None:
            return None if text == "0" else f"std {text}"

    program("torchelastic.distributed.launch").patch_redirects(Std)
    assert (Std.from_str("0"), Std.from_str("3")) == ("none", "std 3")


@pytest.mark.parametrize("name", ["mx_cifar10.py", "chainer_mnist.py", "chainermn_mnist.py", "elastic_imagenet.py"])
def test_a_mistake_is_one_sentence_before_anything_heavy_is_imported(name: str, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("")  # as if it were there
    arguments = {"mx": ["--num-classes=1"], "ch": ["-b", "0"], "el": ["--epochs=0"]}[name[:2]]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    argv = [sys.executable, str(PROGRAMS / name), *arguments]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and done.stdout == ""
