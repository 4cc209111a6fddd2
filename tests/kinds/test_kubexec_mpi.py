"""The agent under a real mpiexec, where this machine has one: what mpiexec passes to a remote shell has to survive."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kinds.exec_server import SHELL, pod, toy_server

pytestmark = pytest.mark.frameworks
WORKERS = ("j-workerset-a-0", "j-workerset-a-1")
WORD = 'two  words; "q" & $HOME'


async def mpiexec(folder: Path, master: str, arguments: Sequence[str], **env: str) -> tuple[int | None, str, list[str]]:
    """Run it with two workers and the master. Returns its exit code, its output, and the pods that got an exec."""
    async with toy_server(folder) as place:
        place.toy.pods = {name: pod(name) for name in WORKERS}
        hosts = folder / "hostfile"
        hosts.write_text("".join(f"{name} slots=1\n" for name in (*WORKERS, master)))
        variables = {
            "OMPI_MCA_plm_rsh_agent": str(SHELL),
            "OMPI_MCA_orte_keep_fqdn_hostnames": "t",
            "OMPI_MCA_orte_default_hostfile": str(hosts),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "TRAINYARD_POD_NAME": master,
        }
        process = await asyncio.create_subprocess_exec(
            "mpiexec",
            *arguments,
            env={**place.env, **variables, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        return process.returncode, out.decode(), sorted(request.match_info["pod"] for request in place.toy.execs)


if shutil.which("mpiexec"):

    @pytest.mark.parametrize("tree", ["0", "1"], ids=["sessions that last", "daemons"])
    async def test_mpiexec_starts_its_daemons_in_the_workers_with_unchanged_arguments(
        tmp_path: Path, tree: str
    ) -> None:
        say = f'echo "$OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE|$OMPI_MCA_some_word|$MINE|$(pwd)|{os.getpid()}"'
        arguments = ["-n", "3", "--mca", "some_word", WORD, "-x", "MINE=" + WORD, "sh", "-c", say]
        env = {"OMPI_MCA_plm_rsh_no_tree_spawn": tree}
        code, out, requests = await mpiexec(tmp_path, socket.gethostname(), arguments, **env)
        assert code == 0 and requests == list(WORKERS)
        assert sorted(out.splitlines()) == [f"{rank}/3|{WORD}|{WORD}|{os.getcwd()}|{os.getpid()}" for rank in range(3)]

    async def test_a_master_whose_pod_name_is_not_its_host_name_runs_its_processes_itself(tmp_path: Path) -> None:
        code, out, requests = await mpiexec(tmp_path, "j-master-x", ["-n", "3", "sh", "-c", "echo ran"])
        assert code == 0 and out == "ran\n" * 3 and requests == list(WORKERS)

    async def test_a_worker_that_fails_fails_the_job(tmp_path: Path) -> None:
        arguments = ["-n", "3", "sh", "-c", 'test "$OMPI_COMM_WORLD_RANK" != 1 || exit 9']
        assert (await mpiexec(tmp_path, socket.gethostname(), arguments))[0] == 9
