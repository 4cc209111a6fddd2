"""Our node, joined to a control plane from a thread of its own, because the commands of the tests block."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.control_plane import ControlPlane
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.node_agent import JoinedNode, JoinOptions

IMAGES = Path(__file__).with_name("readme_images") / "images.yaml"
GPUS = {"nvidia.com/gpu": "8", "alpha.kubernetes.io/nvidia-gpu": "8"}


@contextmanager
def joined(plane: ControlPlane, state: Path, *images: Path) -> Iterator[list[str]]:
    """A node with GPUs, and its messages. `images`: further catalogues."""
    messages: list[str] = []
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()
    failed: list[BaseException] = []

    async def live() -> None:
        node = JoinedNode(
            JoinOptions(
                access=read_kubeconfig([plane.kubeconfig]),
                name="node-1",
                state=state,
                network="namespace",  # where pods find the API server and their account: the operator is one of them
                images=(*images, IMAGES),
                python=sys.executable,  # it runs the operator, which needs the packages of these tests
                extra_resources=GPUS,
                say=messages.append,
            )
        )
        await node.start()
        ready.set()
        await stop.wait()
        await node.stop(kill=True)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(live())
        except BaseException as error:  # told to whoever waits
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=run, name="node")
    thread.start()
    ready.wait()
    try:
        if failed:
            raise failed[0]
        yield messages
    finally:
        if not failed:
            loop.call_soon_threadsafe(stop.set)
        thread.join()
