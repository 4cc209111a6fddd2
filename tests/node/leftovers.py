"""Kill a runner, its helper's watcher, or its helper, at a random moment, and see that nothing is left after 5 seconds.

`leftovers.py NETWORK [COUNT] [SEED]`. Ends with 1 and the list when something is. What counts as left: a process whose
command line names the runner's state folder (the runner, the helper, every init, every pod's program), a namespace that
one of them was in, a mount, a link."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE = 5.0
KINDS = ("net", "mnt", "pid", "ipc", "uts", "user")
RUNNER = Path(__file__).with_name("runner.py")


def processes(mark: str) -> dict[int, str]:
    """Living processes whose command line has the mark."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if mark in line:
                    found[int(name)] = line
    return found


def namespaces(pids: list[int] | None = None) -> set[str]:
    """The namespaces of those processes, or of all that we may look at."""
    found = set()
    for pid in pids if pids is not None else [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        for kind in KINDS:
            with contextlib.suppress(OSError):
                found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
    return found


def mounts() -> list[str]:
    return Path("/proc/mounts").read_text().splitlines()


def links() -> list[str]:
    return sorted(os.listdir("/sys/class/net"))


def hubs(mark: str) -> tuple[list[int], list[int]]:
    """The watcher and the hub: of the helper's processes, the child of the runner and that one's child."""
    helpers = {}
    for pid, line in processes(mark).items():
        if "/node/hub " in line:
            with contextlib.suppress(OSError):
                helpers[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    watchers = [pid for pid, parent in helpers.items() if parent not in helpers]
    return watchers, [pid for pid, parent in helpers.items() if parent in watchers]


def wait_until_none(look: object, seconds: float = PATIENCE) -> list[str]:
    """What is still there when patience ends; empty as soon as nothing is."""
    end = time.monotonic() + seconds
    while True:
        left = look()  # type: ignore[operator]
        if not left or time.monotonic() > end:
            return list(map(str, left))
        time.sleep(0.02)


def one(network: str, dice: random.Random) -> tuple[str, list[str]]:
    """One life of a runner: what was killed when, and what was left."""
    state = tempfile.mkdtemp(prefix="yard-left-")
    mounted, linked, own = mounts(), links(), namespaces([os.getpid()])
    victim = dice.choice(["runner", "runner", "watcher", "hub"])
    wait = dice.choice([dice.uniform(0, 0.6), dice.uniform(0.3, 1.5), dice.uniform(1, 2.5)])
    with open(f"{state}/runner.log", "wb") as log:
        runner = subprocess.Popen([sys.executable, str(RUNNER), network, state], stdout=log, stderr=log)
    try:
        time.sleep(wait)
        seen = processes(state)
        theirs = namespaces(list(seen)) - own
        left: list[str] = []
        if victim != "runner":
            watchers, inner = hubs(state)
            below = set(seen) - {runner.pid}
            for pid in watchers if victim == "watcher" else inner:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if watchers and inner:
                left = wait_until_none(lambda: sorted(below & set(processes(state))))
                time.sleep(dice.uniform(0, 0.5))
                theirs |= namespaces(list(processes(state))) - own
        os.kill(runner.pid, signal.SIGKILL)
        runner.wait()
        left += wait_until_none(lambda: list(processes(state).values()))
        left += wait_until_none(lambda: theirs & namespaces())
        left += wait_until_none(lambda: [line for line in mounts() if line not in mounted])
        left += wait_until_none(lambda: [name for name in links() if name not in linked])
    finally:
        for pid in processes(state):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(state, ignore_errors=True)
    return f"{victim} killed after {wait:.2f} s ({len(seen)} processes, {len(theirs)} namespaces)", left


def main(network: str, count: int, seed: int) -> int:
    dice = random.Random(seed)
    bad, most = 0, 0
    for number in range(count):
        told, left = one(network, dice)
        most = max(most, int(told.split("(")[1].split()[0]))
        if left:
            bad += 1
            print(f"{number}: {told}: LEFT {left}", flush=True)
    print(f"{network} as uid {os.getuid()}: {count} kills, up to {most} processes, {bad} left something, seed {seed}")
    return 1 if bad or most < 3 else 0


if __name__ == "__main__":
    arguments = [*sys.argv[1:], *("namespace", "10", str(random.randrange(10**6)))[len(sys.argv) - 1 :]]
    sys.exit(main(arguments[0], int(arguments[1]), int(arguments[2])))
