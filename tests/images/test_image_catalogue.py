"""What the images of MxJob, ChainerJob and ElasticJob need of a machine, and the messages when it is missing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.kinds.trainjob.shipped_runtimes import shipped_runtimes
from trainyard.node.images import ImageProblem, Images, catalogue, interpreters
from trainyard.node.images.catalogue import Provider
from trainyard.objects.yaml_reader import ManifestError

Make = Callable[..., Images]
CIFAR = "/mxnet/example/image-classification/train_cifar10.py"
KUBEFLOW = "ghcr.io/kubeflow/training-v1"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Images of one catalogue given as text, with a cache of its own."""

    def make_images(text: str = "images: []\n", uv: str | None = None) -> Images:
        file = tmp_path / "images.yaml"
        file.write_text(text)
        return Images([file], tmp_path / "cache", lambda text: None, uv=uv)

    return make_images


async def refused(images: Images, image: str, need_command: bool = False) -> str:
    with pytest.raises(ImageProblem) as caught:
        await images.prepare(image, need_command)
    return caught.value.message


@pytest.mark.parametrize(
    ("image", "file", "program"),
    [
        ("10.199.192.16/x/mxnet-gpu-local:0.12.0", CIFAR, "mx_cifar10.py"),
        ("10.199.192.16/x/mxnet-gpu-dist:0.12.0", CIFAR, "mx_cifar10.py"),
        ("mxnet/python:1.9.1_cpu", CIFAR, "mx_cifar10.py"),
        ("everpeace/chainer:4.1.0", "/train_mnist.py", "chainer_mnist.py"),
        ("everpeace/chainermn:1.3.0", "/train_mnist.py", "chainermn_mnist.py"),
        ("torchelastic/examples:0.2.0", "/workspace/examples/imagenet/main.py", "elastic_imagenet.py"),
        ("torchelastic/examples", "/workspace/classy_vision/classy_train.py", "elastic_classy.py"),
        ("docker.io/kubeflowkatib/pytorch-mnist:v1beta1-45c5727", "/opt/pytorch-mnist/mnist.py", "pytorch_mnist.py"),
        (f"{KUBEFLOW}/pytorch-dist-mnist:latest", "/opt/mnist/src/mnist.py", "pytorch_mnist.py"),
        (f"{KUBEFLOW}/pytorch-dist-sendrecv-test:latest", "/var/dist_sendrecv.py", "pytorch_sendrecv.py"),
        (f"{KUBEFLOW}/tf-mnist-with-summaries:latest", "/var/tf_mnist/mnist_with_summaries.py", "tf_mnist.py"),
        (f"{KUBEFLOW}/jaxjob-simple:latest", "/app/train.py", "jax_psum.py"),
        ("quay.io/coreos/etcd:latest", "/usr/local/bin/etcd", "etcd"),
        ("quay.io/coreos/etcd:v3.4.23", "/usr/local/bin/etcd", "etcd"),
    ],
)  # fmt: skip
def test_the_images_of_the_readmes_have_their_programs(make: Make, image: str, file: str, program: str) -> None:
    entry = make().find(image)
    assert entry is not None and Path(entry.files[file]).name == program
    assert all(Path(place).is_file() for place in entry.files.values() if "/" in place)


TRAINER_FILES = {
    "dataset-initializer": ("initializer.py", "dataset", "/workspace/dataset"),
    "model-initializer": ("initializer.py", "model", "/workspace/model"),
}
"""Image of Trainer -> its program and arguments."""


def test_the_images_of_trainers_runtimes_are_there(make: Make) -> None:
    containers = [
        container
        for runtime in shipped_runtimes()
        for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]
        for container in job["template"]["spec"]["template"]["spec"]["containers"]
    ]
    for container in containers:
        entry = make().find(container["image"])
        assert entry is not None, container["image"]
        name = container["image"].rpartition("/")[2].partition(":")[0]
        program = tuple(os.path.basename(word) if word.endswith(".py") else word for word in entry.entrypoint[1:])
        assert program == TRAINER_FILES.get(name, ())
        if container.get("command", [""])[0] == "/usr/sbin/sshd":
            port = container["readinessProbe"]["tcpSocket"]["port"]
            assert f"Port {port}" in Path(entry.files[container["args"][-1]]).read_text().splitlines()


def test_the_launcher_of_old_is_the_entrypoint_of_its_examples(make: Make) -> None:
    elastic, plain = make().find("torchelastic/examples:0.2.0"), make().find("pytorch/pytorch:1.13.1-cuda11.6")
    assert elastic is not None and plain is not None
    assert elastic.entrypoint == ("python", "-m", "torchelastic.distributed.launch") and plain.entrypoint == ()
    for entry in (elastic, plain):
        assert entry.workdir == "/workspace"
        assert [provider.ask for provider in entry.providers] == [False, False, True], (
            "5.3 GB are not installed unasked"
        )


def test_the_locks_of_mxnet_and_chainer_are_complete() -> None:
    entries = {entry.match[0]: entry for entry in catalogue.read(catalogue.SHIPPED)}
    mxnet, chainer = entries["*mxnet*"].providers[1], entries["everpeace/chainer:*"].providers[1]
    assert {"mxnet==1.9.1", "numpy==1.23.5", "graphviz==0.8.4"} <= set(mxnet.requirements or ())
    assert {"chainer==7.8.1", "numpy==1.23.5", "mpi4py==4.1.2", "setuptools==65.5.0"} <= set(chainer.requirements or ())
    assert "setuptools==65.5.0" in chainer.build and chainer.needs == {"mpiexec": "openmpi-bin"}


async def test_missing_system_packages_are_reported_with_one_install_command(make: Make) -> None:
    provider = (
        f"{{system: {{python: {sys.executable}, modules: {{yaml: a, no_one: python3-one, no_two: python3-two}}}}, "
    )
    provider += "needs: {sh: dash, no-such-program: some-package}}"
    error = await refused(make(f"images:\n- match: x\n  providers: [{provider}]\n"), "x")
    assert f"{sys.executable} has no module no_one and {sys.executable} has no module no_two" in error
    assert "there is no no-such-program on PATH; on Debian: " in error
    assert error.endswith("apt-get install -y python3-one python3-two some-package")


async def test_an_etcd_that_is_not_there_names_its_package(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    error = await refused(make(), "quay.io/coreos/etcd:latest")
    assert error.startswith("quay.io/coreos/etcd:latest: there is no etcd on PATH; run 'make frameworks' ")
    assert error.endswith("apt-get install -y etcd-server")


async def test_a_large_provider_needs_consent(make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installer = tmp_path / "installer"
    installer.write_text(
        f"#!/bin/sh\n[ $1 = venv ] || exit 0\nmkdir -p {tmp_path}/made; echo $* > {tmp_path}/made/asked\nexit 1\n"
    )
    installer.chmod(0o755)
    images = make(
        "images:\n- match: x\n  providers: [{requirements: [a==1], name: huge 1, disk: 1 kB, ask: true}]\n",
        str(installer),
    )
    monkeypatch.delenv("TRAINYARD_YES", raising=False)
    error = await refused(images, "x")
    assert error == "x: huge 1 takes 1 kB, which needs your consent; write --yes to consent (or set TRAINYARD_YES=1)"
    assert not (tmp_path / "made").exists()
    monkeypatch.setenv("TRAINYARD_YES", "1")
    assert "cannot be installed" in await refused(images, "x")
    assert (tmp_path / "made" / "asked").exists()


async def test_build_tools_are_installed_before_the_locked_packages(make: Make, tmp_path: Path) -> None:
    installer = tmp_path / "installer"
    installer.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/log\n[ $1 = venv ] || exit 0\n'
        f'for last; do :; done\nmkdir -p "$last/bin"; ln -s {sys.executable} "$last/bin/python"\n'
    )
    installer.chmod(0o755)
    provider = "{requirements: [a==1], build: [setuptools==65.5.0, wheel==0.45.1]}"
    await make(f"images:\n- match: x\n  providers: [{provider}]\n", str(installer)).prepare("x", False)
    venv, tools, pins = (tmp_path / "log").read_text().splitlines()
    assert venv.startswith("venv ") and tools.endswith(" setuptools==65.5.0 wheel==0.45.1")
    assert " --no-build-isolation -r " in pins


@pytest.mark.parametrize(
    ("entry", "expected_message"),
    [
        ("files: {train.py: /a}", ".files: 'train.py' is not an absolute path below /"),
        ("files: {/a/../b: /a}", ".files: '/a/../b' is not an absolute path below /"),
        ("folders: [/]", ".folders: '/' is not an absolute path below /"),
        ("providers: [{requirements: [a==1], build: [setuptools]}]", ".providers[0].build: 'setuptools' is not pinned"),
        ("providers: [{current: {}, needs: [etcd]}]", "needs"),
    ],
)
def test_an_entry_that_cannot_be_used_is_refused_with_its_place(make: Make, entry: str, expected_message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        make(f"images:\n- match: x\n  {entry}\n")
    assert expected_message in str(caught.value)


async def test_a_missing_image_file_is_reported(make: Make) -> None:
    error = await refused(make("images:\n- match: x\n  files: {/train.py: '{here}/gone.py'}\n"), "x")
    assert error.startswith("x: /train.py should be ") and "gone.py, which does not exist; see its entry" in error


def test_a_dead_name_on_path_does_not_hide_a_python_further_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, script in (("first", "exit 127"), ("second", "echo 3.18.4")):
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "python3.18"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([f"{tmp_path}/first", f"{tmp_path}/second"]))
    interpreter = interpreters.interpreter_for(Provider(requirements=["a==1"], python="3.18"))
    assert interpreter is not None and interpreter.path == f"{tmp_path}/second/python3.18"


def test_every_image_of_the_examples_is_known(make: Make) -> None:
    images, root = make(), Path(__file__).parents[2]
    files = [file for folder in ("examples", "config/samples") for file in (root / folder).glob("*.yaml")]
    texts = [file.read_text() for file in files if not file.name.startswith("mx_operator_")]  # an installation, no job
    named = {match for text in texts for match in re.findall(r"\bimage: +(\S+)", text)}
    assert len(named) >= 7
    assert [image for image in sorted(named) if images.find(image) is None] == []
