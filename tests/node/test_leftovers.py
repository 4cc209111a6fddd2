"""Nothing is left after a SIGKILL of any process: a few random kills here, fifty by `make leftovers`."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tests.node.leftovers import left_by, processes
from tests.node.ordinary_user import checkout, command


@pytest.mark.slow
@pytest.mark.parametrize("who", ["self", "ordinary"])
@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_nothing_is_left_after_a_sigkill(network: str, who: str) -> None:
    python, env = command(who == "ordinary")
    seed = str(random.randrange(10**6))
    arguments = [*python, "-m", "tests.node.leftovers", network, "4", seed]
    root = checkout(who == "ordinary")
    done = subprocess.run(arguments, cwd=root, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


# Together in one process as many as run as long as the longest. In the shared network nothing needs a right that an
# ordinary user lacks: one file of stories shows it.
STORIES = (
    ("node", ""),
    ("memory_limits usage", ""),
    ("exec services", "namespace"),
    ("network volumes messages service_account", "namespace"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("stories", "network"), STORIES)
def test_an_ordinary_user_runs_pods_in_both_networks(stories: str, network: str) -> None:
    python, env = command(ordinary=True)
    root = checkout(ordinary=True)
    files = [str(root / "tests" / "node" / f"test_{story}.py") for story in stories.split()]
    arguments = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-x", "-k", network, *files]
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False, timeout=400, cwd=root)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr


def test_the_search_for_leftovers_finds_one() -> None:
    mark = f"left-{random.randrange(10**9)}"
    program = "import time; print('here', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, mark], stdout=subprocess.PIPE, text=True) as left:
        # Its command line can be read a moment after the start, not at once.
        assert left.stdout and left.stdout.readline() == "here\n"
        assert left_by(lambda: list(processes(mark)), 0.1) == [str(left.pid)]
        left.kill()
    assert left_by(lambda: list(processes(mark))) == []
