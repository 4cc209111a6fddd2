"""How long the page of a job takes whose log has 1 GB, and how much memory that takes of the process that serves it,
beside the same with a log of 1 kB.

    python -m bench.large_log [--rounds 5]

Opened are the page of the job, the stream of its log, and the last MiB of the file. The node keeps the beginning and
the end of a log that is larger than its limit, so the file has 1 GB of which most is a hole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path

from tests.attacks.attacked_cluster import TFJOB, AttackedCluster, attacked_cluster
from trainyard.objects import Json, uid_of

SIZES = {"small": 1 << 10, "large": 1 << 30}  # bytes
RANGE = 1 << 20  # bytes read from the end


def job(name: str, size: int) -> Json:
    """A job whose replica prints so many bytes and goes on."""
    command = ["/bin/sh", "-c", f"yes 'step 1 loss 0.5' | head -c {size}; exec sleep 600"]
    container = {"name": "tensorflow", "image": "example.invalid/x", "command": command}
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}}
    spec = {"replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]}
    return {"apiVersion": TFJOB.api_version, "kind": TFJOB.kind, "metadata": {"name": name}, "spec": spec}


def memory(process: int) -> float:
    """The memory of the process in MiB, shared pages by their part."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


async def until_written(cluster: AttackedCluster, uid: str, size: int) -> str:
    """The name of the log, once it has so many bytes."""
    while True:
        files = json.loads((await cluster.page(f"jobs/{uid}/logs"))[1]).get("files")
        if files and (files[0]["size"] or 0) >= size:
            return str(files[0]["file"])
        await asyncio.sleep(0.5)


async def open_page(cluster: AttackedCluster, uid: str, file: str) -> float:
    """The seconds until everything is there."""
    begin = time.monotonic()
    assert (await cluster.page(f"jobs/{uid}"))[0] == 200
    async with cluster.browser.live(f"job:{uid}", f"logs:{uid}:*") as page:
        await page.frame("log")
        assert (await cluster.page(f"jobs/{uid}/logs/{file}?offset=-{RANGE}&limit={RANGE}"))[0] == 200
    return time.monotonic() - begin


async def measure(rounds: int) -> None:
    async with attacked_cluster() as cluster:
        for name, size in SIZES.items():
            uid = uid_of(await cluster.api.create(TFJOB, "default", job(name, size)))
            file = await until_written(cluster, uid, size)
            before = memory(cluster.process)
            seconds = [await open_page(cluster, uid, file) for _ in range(rounds)]
            print(
                f"{name} log, {size:,} bytes: first {seconds[0]:.3f} s, longest of the others {max(seconds[1:]):.3f} s"
                f" (to be at most 0.3), {memory(cluster.process) - before:.1f} MiB more"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
