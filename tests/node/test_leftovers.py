"""Nothing is left behind, whoever is killed: a few random kills here, fifty by `make leftovers`."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "src"
ORDINARY = 12345
USABLE = "import subprocess, sys, yards; subprocess.run([sys.executable, '-c', ''], check=True)"


def command(ordinary: bool) -> tuple[list[str], dict[str, str]]:
    """How to run a test program as ourselves, or, when we are root, as an ordinary user."""
    libraries = [str(SOURCES), str(HERE), *(path for path in sys.path if path.endswith("site-packages"))]
    env = {**os.environ, "PYTHONPATH": ":".join(libraries), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}
    if not ordinary or os.getuid() != 0:
        return [sys.executable], env
    ids = (f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups")
    for python in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        become = ["setpriv", *ids, python]
        if not Path(python).exists():
            continue
        # Asked to start itself once more: the first start may still have been done with root's rights.
        if subprocess.run([*become, "-c", USABLE], env=env, capture_output=True, check=False).returncode == 0:
            return become, env
    raise AssertionError(
        f"run as root, these tests also run as uid {ORDINARY}, who needs a Python {sys.version_info.minor} "
        f"that everybody may read: neither {sys.executable} nor one in /usr/bin will do"
    )


@pytest.mark.slow
@pytest.mark.parametrize("who", ["self", "ordinary"])
@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_nothing_is_left_after_a_kill(network: str, who: str) -> None:
    python, env = command(who == "ordinary")
    seed = str(random.randrange(10**6))
    arguments = [*python, str(HERE / "leftovers.py"), network, "4", seed]
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_an_ordinary_user_runs_pods_in_both_networks() -> None:
    python, env = command(ordinary=True)
    stories = [str(HERE / f"test_{name}.py") for name in ("node", "network", "volumes")]
    arguments = [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-x", *stories]
    root = HERE.parents[1]
    done = subprocess.run(arguments, env=env, capture_output=True, text=True, check=False, timeout=400, cwd=root)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
