"""Files and folders that an image brings, as pods see them, in each network."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.node_cluster import TOKEN, NodeCluster
from trainyard.app.catalogues import cache_folder
from trainyard.client import ApiClient
from trainyard.node.images import Images, PreparedImage, create_files
from trainyard.node.images.catalogue import PROGRAMS
from trainyard.node.kubelet.node import Node
from trainyard.server import Server

ENTRY = """
images:
- match: mine
  providers: [{current: {}}]
  workdir: /place-of-mine/deep
  env: {PATH: "/usr/bin:/bin"}  # behind the places of the interpreter that was chosen
  files:
    /place-of-mine/deep/program.py: "{here}/real.py"
    /program.py: "{here}/real.py"
    /usr/local/bin/our-shell: sh
  folders: [/var/lib/etcd-of-mine]
"""
PROGRAM = """
import os, sys
sys.path[0] = os.path.dirname(os.path.realpath(__file__))
print(sys.argv[1:], open("kept").read() if os.path.exists("kept") else "fresh", os.listdir(os.environ["FOLDER"]))
open("kept", "w").write("kept")
"""


@pytest.fixture(params=["namespace", "shared"])
async def cluster(request: pytest.FixtureRequest, state: Path) -> AsyncIterator[NodeCluster]:
    """As everywhere, with the real catalogue behind one of our own."""
    (state / "images.yaml").write_text(ENTRY)
    (state / "real.py").write_text(PROGRAM)
    lines: list[str] = []
    server = Server(token=TOKEN)
    await server.start()
    async with ApiClient(server.url, TOKEN) as api:
        images = Images([state / "images.yaml"], cache_folder(), lines.append)
        node = Node(api, state, images, network=request.param, token=TOKEN, print_message=lines.append)
        await node.start()
        yield NodeCluster(api, node, lines)
        await node.stop(kill=True)
    await server.stop()


async def test_a_container_finds_the_files_of_its_image_and_its_own_empty_folders(cluster: NodeCluster) -> None:
    env = [{"name": "FOLDER", "value": "/var/lib/etcd-of-mine"}]
    for name, folder in (("first", ""), ("second", "/place-of-mine/deep/"), ("third", "/")):
        more = {"image": "mine", "env": env, "command": ["python", f"{folder}program.py", "a"]}
        await cluster.pod(name, container=more)
        assert await cluster.result(name) == "['a'] fresh []\n"
    assert "place-of-mine" not in os.listdir("/") and "etcd-of-mine" not in os.listdir("/var/lib")


async def test_a_program_of_the_machine_is_at_the_path_that_it_has_in_the_image(cluster: NodeCluster) -> None:
    await cluster.pod(
        "one", container={"image": "mine", "command": ["/usr/local/bin/our-shell", "-c", "echo here; pwd"]}
    )
    lines = (await cluster.result("one")).splitlines()
    assert lines[0] == "here" and lines[1].endswith("/place-of-mine/deep")


@pytest.mark.parametrize("cluster", ["shared"], indirect=True)
async def test_sshd_lets_nobody_into_this_machine(cluster: NodeCluster) -> None:
    """As a worker of MPIJob v2beta1 starts it, with the settings of this machine."""
    await cluster.pod("worker", container={"image": "any", "command": ["/usr/sbin/sshd", "-De"]})
    pod = await cluster.phase("worker", "Failed")
    assert "port 22 of this machine, which all pods share; start with --network namespace" in pod["status"]["message"]


MNIST = "python3 /train_mnist.py -e 1 -b 1000 -u 10"
COMMANDS = [
    ("x/mxnet-gpu-local:0.12.0", "python train_cifar10.py --num-epochs=1 --gpus=0", "Train-accuracy="),
    ("everpeace/chainer:4.1.0", f"{MNIST} --noplot", "validation/main/loss"),
    ("everpeace/chainermn:1.3.0", f"mpiexec -n 2 --oversubscribe {MNIST}", "Num process (COMM_WORLD): 2"),
    ("quay.io/coreos/etcd:latest", "/usr/local/bin/etcd --version", "etcd Version"),
    (
        "pytorch/pytorch:1.13",
        f"python -m torch.distributed.run --standalone --nproc_per_node=2 {PROGRAMS}/elastic_imagenet.py "
        "--epochs=1 --pictures=128",
        "done: rank 1 of 2",
    ),
]


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.parametrize("cluster", ["namespace"], indirect=True)  # in the other one the stories train them
@pytest.mark.parametrize(("image", "command", "expected_message"), COMMANDS, ids=[image for image, *_ in COMMANDS])
async def test_the_commands_of_the_readmes_run_in_a_pod(
    cluster: NodeCluster, image: str, command: str, expected_message: str
) -> None:
    await cluster.pod("main", container={"image": image, "command": ["sh", "-c", command]})
    await cluster.phase("main", "Succeeded", 120)
    assert expected_message in await cluster.logs("main")


def test_the_mount_point_of_another_pod_is_no_folder_of_the_machine(tmp_path: Path) -> None:
    """Also one of another node: the file would be mounted into it, where the other pod has the whole folder."""
    (tmp_path / "real.py").touch()
    prepared = PreparedImage([], files={f"{tmp_path}/of-image/train.py": f"{tmp_path}/real.py"})
    places = create_files(prepared, tmp_path / "made")
    assert places == [(f"{tmp_path}/made{tmp_path}/of-image", f"{tmp_path}/of-image")]
    (tmp_path / "of-image").mkdir()
    assert create_files(prepared, tmp_path / "made") == places
    (tmp_path / "of-image/mine").touch()
    assert create_files(prepared, tmp_path / "made") == [(f"{tmp_path}/real.py", f"{tmp_path}/of-image/train.py")]


def test_existing_folders_stay_and_the_topmost_missing_folder_is_created(tmp_path: Path) -> None:
    here = tmp_path / "machine"
    here.mkdir()
    (here / "of-the-machine").touch()
    source = tmp_path / "real.py"
    source.write_text("")
    files = {f"{here}/a/b/one.py": str(source), f"{here}/a/two.py": str(source), f"{here}/three.py": str(source)}
    prepared = PreparedImage([], {}, [], [], f"{here}/w/x", files, (f"{here}/a/c", str(tmp_path)))
    folder = tmp_path / "made"
    places = create_files(prepared, folder)
    assert create_files(prepared, folder) == places, "a second start of the container finds it made"
    assert places == [
        (f"{folder}{tmp_path}", str(tmp_path)),
        (f"{folder}{here}/a", f"{here}/a"),
        (str(source), f"{here}/three.py"),
        (f"{folder}{here}/w", f"{here}/w"),
    ]
    assert (folder / str(here)[1:] / "a/b/one.py").resolve() == source
    assert (folder / str(here)[1:] / "a/c").is_dir() and os.listdir(here) == ["of-the-machine"]
