"""Kill a runner, its supervisor's watcher, or its supervisor, at a random moment, and see that nothing is left after 5
seconds.

    python -m tests.node.leftovers COUNT [SEED]            both networks, as ourselves and, if root, as an ordinary user
    python -m tests.node.leftovers NETWORK COUNT SEED      one of these

Ends with 1 and the list when something is left: a process whose command line names the runner's state folder (the
runner, the supervisor, every init, every pod's program), a namespace that one of them was in, a mount, a link."""

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
from collections.abc import Callable, Collection
from pathlib import Path

from tests.node.ordinary_user import checkout, command
from tests.support.waiting import NotInTime, until

PATIENCE = 5.0
KINDS = ("net", "mnt", "pid", "ipc", "uts", "user")
ROOT = Path(__file__).resolve().parents[2]


def processes(mark: str) -> dict[int, str]:
    """Living processes whose command line has the mark."""
    mounted = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if mark in line:
                    mounted[int(name)] = line
    return mounted


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat, from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def everybody() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def namespaces(pids: list[int], hold: contextlib.ExitStack | None = None) -> set[str]:
    """The namespaces of those processes that we may look at. One that is held has its number for itself until then."""
    numbers = set()
    for pid in pids:
        for kind in KINDS:
            with contextlib.suppress(OSError):
                path = f"/proc/{pid}/ns/{kind}"
                if hold is not None:
                    hold.callback(os.close, os.open(path, os.O_RDONLY))
                numbers.add(os.readlink(path))
    return numbers


def mounts() -> list[str]:
    return Path("/proc/mounts").read_text().splitlines()


def links() -> list[str]:
    return sorted(os.listdir("/sys/class/net"))


def supervisors(mark: str) -> tuple[list[int], list[int]]:
    """The watcher and the supervisor: of the supervisor's processes, the child of the runner and that one's child."""
    supervisors = {}
    for pid, line in processes(mark).items():
        if "/node/supervisor " in line:
            with contextlib.suppress(OSError):
                supervisors[pid] = int(stat(pid)[1])
    watchers = [pid for pid, parent in supervisors.items() if parent not in supervisors]
    return watchers, [pid for pid, parent in supervisors.items() if parent in watchers]


def left_by(look: Callable[[], Collection[object]], seconds: float = PATIENCE) -> list[str]:
    """What `look` still lists after so many seconds; empty as soon as it lists nothing."""
    left: Collection[object] = ()

    def is_empty() -> bool:
        nonlocal left
        left = look()
        return not left

    with contextlib.suppress(NotInTime):
        until(is_empty, "nothing is left", seconds=seconds)
    return list(map(str, left))


def one_life(network: str, dice: random.Random, stage: str) -> tuple[str, list[str]]:
    """One life of a runner: what was killed when, and what was left. `stage` is what the runner has said by then."""
    state = tempfile.mkdtemp(prefix="cluster-left-")
    mounted, linked, own = mounts(), links(), namespaces([os.getpid()])
    hold = contextlib.ExitStack()
    victim = dice.choice(["runner", "runner", "watcher", "supervisor"])
    wait = dice.uniform(0, 0.8)
    with open(f"{state}/runner.log", "wb") as log:
        runner = subprocess.Popen([sys.executable, "-m", "tests.node.runner", network, state], stdout=log, stderr=log)
    try:
        until(Path(f"{state}/runner.log").read_text, f"the runner prints {stage!r}", accept=lambda log: stage in log)
        time.sleep(wait)
        started = processes(state)
        theirs = namespaces(list(started), hold) - own
        left: list[str] = []
        if victim != "runner":
            watchers, inner = supervisors(state)
            below = set(started) - {runner.pid}
            for pid in watchers if victim == "watcher" else inner:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if watchers and inner:
                left = left_by(lambda: sorted(below & set(processes(state))))
                time.sleep(dice.uniform(0, 0.5))
                theirs |= namespaces(list(processes(state)), hold) - own
        runner.kill()
        runner.wait()
        left += left_by(lambda: list(processes(state).values()))
        left += left_by(lambda: theirs & namespaces(everybody()))
        hold.close()  # it holds links, too
        left += left_by(lambda: [line for line in mounts() if line not in mounted])
        left += left_by(lambda: [name for name in links() if name not in linked])
    finally:
        hold.close()
        runner.kill()
        runner.wait()
        for pid in processes(state):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(state, ignore_errors=True)
    return (
        f"{victim} killed {wait:.2f} s after {stage or 'its start'} "
        f"({len(started)} processes, {len(theirs)} namespaces)",
        left,
    )


def main(network: str, count: int, seed: int) -> int:
    dice = random.Random(seed)
    bad = 0
    for number in range(count):
        description, left = one_life(network, dice, ("running", "", "started", "running")[number % 4])
        if left:
            bad += 1
            print(f"{number}: {description}: LEFT {left}", flush=True)
    print(f"{network} as uid {os.getuid()}: {count} kills, {bad} left something, seed {seed}", flush=True)
    return 1 if bad else 0


def everywhere(count: str, seed: str) -> int:
    failed = 0
    for ordinary in (False, True) if os.getuid() == 0 else (False,):
        python, env = command(ordinary)
        root = checkout(ordinary)
        for network in ("namespace", "shared"):
            failed |= subprocess.run(
                [*python, "-m", "tests.node.leftovers", network, count, seed], cwd=root, env=env, check=False
            ).returncode
    return failed


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        sys.exit(everywhere(sys.argv[1], sys.argv[2] if sys.argv[2:] else str(random.randrange(10**6))))
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
