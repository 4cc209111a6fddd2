"""`python -m trainyard.testing.check_server`: the page of docs/api-server.md, or a run against a server."""

from __future__ import annotations

import asyncio
import sys
import traceback
from argparse import ArgumentParser
from pathlib import Path

from trainyard.app import kubeconfig
from trainyard.testing.check_server import CHECKS, Check
from trainyard.testing.check_server.runner import run, run_embedded
from trainyard.testing.check_server.subject import remote
from trainyard.testing.check_server.table import page

AT_ONCE = 8


async def judge(checks: list[Check], file: str, etcd: str) -> frozenset[str]:
    """The names of those that did not hold, each told as it comes."""
    bad: set[str] = set()
    turns = asyncio.Semaphore(AT_ONCE if file else 1)

    async def one(check: Check) -> None:
        async with turns:
            try:
                if file:
                    access = kubeconfig.read_kubeconfig([Path(file)])
                    async with remote(access.server, access.token, access.secure(), etcd) as yard:
                        await run(check, yard)
                else:
                    await run_embedded(check)
            except Exception as error:
                bad.add(check.name)
                where = traceback.extract_tb(error.__traceback__)
                line = next((at for at in reversed(where) if "/checks/" in at.filename), where[-1])
                print(f"FAILED {check.name} line {line.lineno}: {line.line}\n    {error!r}"[:3000], flush=True)

    await asyncio.gather(*(one(check) for check in checks))
    return frozenset(bad)


def main() -> None:
    parser = ArgumentParser(prog="python -m trainyard.testing.check_server")
    parser.add_argument("--run", action="store_true", help="ask a server instead of printing the page")
    parser.add_argument("--kubeconfig", default="", help="the cluster to ask; a fresh embedded server by default")
    parser.add_argument("--etcd", default="", help="the URL of that cluster's etcd, whose past is then compacted away")
    parser.add_argument("-k", dest="words", default="", help="only checks whose name contains this")
    given = parser.parse_args()
    if not given.run:
        print(page(CHECKS), end="")
        return
    chosen = [check for check in CHECKS if given.words in check.name]
    bad = asyncio.run(judge(chosen, given.kubeconfig, given.etcd))
    print(f"{len(chosen) - len(bad)} of {len(chosen)} hold")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
