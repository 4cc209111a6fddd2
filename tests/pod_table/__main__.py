"""Run the table of pods on a cluster, and print what it shows of each as JSON, or write it to a file.

python -m tests.pod_table [--real-node | --kubeconfig FILE --image IMAGE] [--runs N] [--write FILE] [ROW ...]

The pods run on our node, on a real one that is started for them (docs/real-node.md), or on the first node of a cluster.
`--write` is for a real kubelet: its answers are what ours are compared with. Answers to other rows are kept.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.pod_table import kept
from tests.pod_table.follower import Side, our_side, run_rows
from tests.pod_table.rows import ROWS
from tests.pod_table.trace import Trace
from tests.support.real_node import RealNode
from tests.support.real_node_build import PYTHON_IMAGE, missing
from tests.support.watched_objects import until_object
from trainyard.app.kubeconfig import find_cluster
from trainyard.objects.resources import NAMESPACE, NODE, SERVICE_ACCOUNT

EVENT_SECONDS = 3.0  # after the end of a row


@asynccontextmanager
async def remote_side(kubeconfig: str, image: str) -> AsyncIterator[tuple[Side, dict[str, str]]]:
    """A new namespace of a cluster, its first node, and the versions of that."""
    async with find_cluster(kubeconfig).api() as api:
        info = (await api.list(NODE))["items"][0]
        namespace = f"pod-table-{secrets.token_hex(3)}"
        await api.create(NAMESPACE, "", {"metadata": {"name": namespace}})
        await until_object(api, SERVICE_ACCOUNT, namespace, "default", bool, "the account of the pods")
        versions = {key: info["status"]["nodeInfo"][key] for key in ("kubeletVersion", "containerRuntimeVersion")}
        try:
            yield Side(api, namespace, info["metadata"]["name"], image), versions
        finally:
            await api.delete(NAMESPACE, "", namespace)


@asynccontextmanager
async def local_side() -> AsyncIterator[tuple[Side, dict[str, str]]]:
    async with our_side() as side:
        yield side, {}


async def main(options: argparse.Namespace) -> None:
    rows = [row for row in ROWS if not options.rows or row.name in options.rows]
    runs: list[dict[str, Trace]] = []
    versions: dict[str, str] = {}
    for _ in range(options.runs):
        side = remote_side(options.kubeconfig, options.image) if options.kubeconfig else local_side()
        async with side as (place, node_versions):
            versions = node_versions
            runs.append(await run_rows(place, rows, lambda *_: False, EVENT_SECONDS))
    if options.write:
        kept.write(options.write, versions, runs)
    else:
        facts = {row.name: kept.merged([run.get(row.name, {}) for run in runs]) for row in rows}
        print(json.dumps(facts, indent=1))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pod_table")
    parser.add_argument("--real-node", action="store_true")
    parser.add_argument("--kubeconfig", default="")
    parser.add_argument("--image", default="")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--write", type=Path)
    parser.add_argument("rows", nargs="*")
    options = parser.parse_args(arguments)
    if unknown := set(options.rows) - {row.name for row in ROWS}:
        parser.error(f"no row {', '.join(sorted(unknown))}; rows are: {' '.join(row.name for row in ROWS)}")
    if bool(options.kubeconfig) is not bool(options.image):
        parser.error("--kubeconfig and --image belong together: an image with sh that the node has or can pull")
    if options.write and not (options.kubeconfig or options.real_node):
        parser.error("--write is for a real kubelet: --real-node, or --kubeconfig")
    if options.real_node and (reason := missing()):
        parser.error(reason)
    return options


def run(options: argparse.Namespace) -> None:
    """Run the table where the options say."""
    with contextlib.ExitStack() as stack:
        if options.real_node:
            node = stack.enter_context(RealNode())
            options.kubeconfig, options.image = str(node.kubeconfig), PYTHON_IMAGE
        asyncio.run(main(options))


if __name__ == "__main__":
    run(parsed(sys.argv[1:]))
