"""A node in a process of its own, which kills itself at one of its writes to a pod, before or after the server has it.

Run as a program: URL, TOKEN, folder of the state, folder of this life, number of the write (0: none), "before" or
"after".
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.node.node_cluster import CurrentInterpreter
from trainyard.client import ApiClient, ApiRequest
from trainyard.node.kubelet.node import Node


class MortalApi(ApiClient):
    """Of its writes to pods the one with the number `last` is the last."""

    last, when, writes = 0, "before", 0

    async def send(self, request: ApiRequest) -> bytes:
        self.writes += request.method != "GET" and "/pods/" in request.path
        is_last = 0 < self.last <= self.writes
        if is_last and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = await super().send(request)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer


async def main(url: str, token: str, state: str, life: str, last: str, when: str) -> None:
    """Run the node until it is killed."""
    api = MortalApi(url, token)
    api.last, api.when = int(last), when
    async with api:
        images = CurrentInterpreter(Path(life))
        await Node(api, Path(state), images, network="shared", token=token, print_message=print).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
