"""A real training of an ordinary user, from nothing: a virtual environment, the wheel, an environment of their own.

With MXNet, whose environment is a tenth of TensorFlow's: what differs for an ordinary user is not the framework.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stories.runs import EXAMPLES, LONGEST, REPOSITORY, run_to_end, succeeded
from tests.stories.test_mxnet_training import assert_all_learned_the_same

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

NOBODY = 12345  # a user without a name, without rights


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """A folder of an ordinary user's own, removed afterwards: it holds two environments."""
    folder = Path(tempfile.mkdtemp(prefix="nobody-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


def test_an_ordinary_user_installs_trainyard_and_trains_in_the_namespace_network(nobodys: Path) -> None:
    """From nothing: a virtual environment of the system's Python, the wheel, the environment for MXNet."""
    python = "/usr/bin/python3"  # everybody can read it; the one that runs the tests may lie in somebody's home
    user = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(nobodys), "TMPDIR": str(nobodys / "tmp")}
    env = {name: value for name, value in os.environ.items() if name.lower().endswith(("_proxy", "_cert", "_url"))}
    env |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))} | user
    root = os.getuid() == 0
    become = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"] if root else []

    def done(*argv: str) -> None:
        ended = subprocess.run([*become, *argv], env=env, cwd=nobodys, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{argv}: {ended.stdout}{ended.stderr}"

    (nobodys / "tmp").mkdir()
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(nobodys))
    subprocess.run([*pip, str(REPOSITORY)], check=True)
    (wheel,) = nobodys.glob("trainyard_jobs-*.whl")
    shutil.copy(EXAMPLES / "mx_job_dist.yaml", nobodys)
    if root:
        for path in (nobodys, *nobodys.iterdir()):
            os.chown(path, NOBODY, NOBODY)
    done(python, "-m", "venv", "venv")
    done("venv/bin/python", "-m", "pip", "install", "-q", str(wheel))

    program = (*become, str(nobodys / "venv" / "bin" / "trainyard"))
    arguments = ("mx_job_dist.yaml", "--network", "namespace")
    run = run_to_end(*arguments, seconds=2 * LONGEST, program=program, env=env, cwd=nobodys)
    succeeded(run)
    assert_all_learned_the_same(run)
    (environment,) = (nobodys / ".cache" / "trainyard" / "environments").glob("*/bin/python")
    assert environment.lstat().st_uid == (NOBODY if root else os.getuid())
