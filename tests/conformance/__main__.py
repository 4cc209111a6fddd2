"""`python -m tests.conformance`: prints docs/api-server.md, or runs the checks against a server."""

from __future__ import annotations

import asyncio
import sys
import traceback
from argparse import ArgumentParser
from pathlib import Path

from tests.conformance import CHECKS, Check
from tests.conformance.connect import remote
from tests.conformance.runner import run, run_embedded
from tests.conformance.table import page
from trainyard.app import kubeconfig

CONCURRENT_CHECKS = 8


async def run_all(checks: list[Check], kubeconfig_path: str, etcd: str) -> frozenset[str]:
    """Run the checks, print each failure as it happens, and return the names of the failed ones."""
    failed: set[str] = set()
    slots = asyncio.Semaphore(CONCURRENT_CHECKS if kubeconfig_path else 1)

    async def run_one(check: Check) -> None:
        async with slots:
            try:
                if kubeconfig_path:
                    access = kubeconfig.read_kubeconfig([Path(kubeconfig_path)])
                    async with remote(access.server, access.token, access.secure(), etcd) as cluster:
                        await run(check, cluster)
                else:
                    await run_embedded(check)
            except Exception as error:
                failed.add(check.name)
                frames = traceback.extract_tb(error.__traceback__)
                frame = next((frame for frame in reversed(frames) if "/checks/" in frame.filename), frames[-1])
                print(f"FAILED {check.name} line {frame.lineno}: {frame.line}\n    {error!r}"[:3000], flush=True)

    await asyncio.gather(*(run_one(check) for check in checks))
    return frozenset(failed)


def main() -> None:
    parser = ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--run", action="store_true", help="run the checks instead of printing the page")
    parser.add_argument("--kubeconfig", default="", help="the cluster to check; a fresh embedded server by default")
    parser.add_argument("--etcd", default="", help="the URL of that cluster's etcd, whose history is then compacted")
    parser.add_argument("-k", dest="name_part", default="", help="only checks whose name contains this")
    arguments = parser.parse_args()
    if not arguments.run:
        print(page(CHECKS), end="")
        return
    selected = [check for check in CHECKS if arguments.name_part in check.name]
    failed = asyncio.run(run_all(selected, arguments.kubeconfig, arguments.etcd))
    print(f"{len(selected) - len(failed)} of {len(selected)} passed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
