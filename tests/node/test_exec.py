"""Programs started in running containers, in both networks."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from aiohttp import WSServerHandshakeError

from tests.node.leftovers import processes
from tests.node.node_cluster import NodeCluster
from tests.node.sessions import V4, V5, execute, query, refusal, talk
from tests.support.waiting import until_async
from trainyard.core import decode_child
from trainyard.node.kubelet.api.exec import ExecRequest
from trainyard.node.sandbox.exec_result import ExecResult
from trainyard.objects import is_condition_true
from trainyard.objects.labels import EXEC_SESSION, OWNER
from trainyard.objects.resources import POD

pytestmark = pytest.mark.slow

WAITS = "import time; print('up', flush=True); time.sleep(600)"
# A daemon as Open MPI's orted: it leaves session and parent, and keeps nothing open but what `keep` says.
DAEMON = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
if 'keep' not in sys.argv:
    for fd in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
with open(sys.argv[1], 'w') as file:
    file.write('alive')
while True:
    time.sleep(0.05)
    if os.path.exists(sys.argv[1] + '.ask'):
        os.rename(sys.argv[1] + '.ask', sys.argv[1] + '.answer')
"""


async def until_exists(path: Path) -> None:
    await until_async(path.exists, f"{path} exists")


async def until_unchanged(path: Path) -> int:
    """The number in a file, once it has not grown for half a second."""
    last, since = "", time.monotonic()

    def is_unchanged() -> bool:
        nonlocal last, since
        if (content := path.read_text()) != last:
            last, since = content, time.monotonic()
        return bool(last) and time.monotonic() - since > 0.5

    await until_async(is_unchanged, f"nothing is written into {path}")
    return int(last)


async def assert_daemon_answers(mark: Path) -> None:
    question, answer = Path(f"{mark}.ask"), Path(f"{mark}.answer")

    def ask() -> bool:
        question.touch()
        return answer.exists()

    await until_async(ask, "the daemon answers")


async def until_no_process(mark: str) -> None:
    """Wait until no process has `mark` in its command line."""
    await until_async(lambda: processes(mark), f"no process of {mark}", accept=lambda left: not left, seconds=20)


async def up(cluster: NodeCluster, name: str = "box", script: str = WAITS, **more: object) -> None:
    await cluster.pod(name, script, **more)
    await cluster.phase(name, "Running")


async def test_a_command_runs_in_the_container_with_its_streams_and_exit_code(cluster: NodeCluster) -> None:
    await up(cluster)
    done = await execute(cluster, "box", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.out, done.err, done.code) == (b"out\n", b"err\n", 3)
    text = "error executing command [sh -c echo out; echo err >&2; exit 3], exit code 3"
    assert done.status == {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {text}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    }
    assert (await execute(cluster, "box", "true")).status == {"metadata": {}, "status": "Success"}


async def test_the_status_tells_that_a_command_was_executed_in_a_pod_of_a_job(cluster: NodeCluster) -> None:
    """It is written before the command begins: a launcher may end right after it."""
    await up(cluster, "worker", metadata={"labels": {OWNER: "job"}})
    await up(cluster, "other")
    assert decode_child(await cluster.api.get(POD, "default", "worker")).status.had_exec == "False"
    for name, has_condition, had_exec in (("worker", True, "True"), ("other", False, "")):
        assert (await execute(cluster, name, "true")).status == {"metadata": {}, "status": "Success"}
        pod = await cluster.api.get(POD, "default", name)
        assert is_condition_true(pod["status"]["conditions"], EXEC_SESSION) is has_condition
        assert decode_child(pod).status.had_exec == had_exec


async def test_of_a_pod_that_an_older_node_has_started_no_command_is_not_known(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    """It runs, and has no condition ExecSession: such a node has written none."""
    end = tmp_path / "end"
    script = f"import pathlib, time\nwhile not pathlib.Path({str(end)!r}).exists(): time.sleep(0.05)"
    await up(cluster, "worker", script, metadata={"labels": {OWNER: "job"}})
    pod = await cluster.api.get(POD, "default", "worker")
    others = [condition for condition in pod["status"]["conditions"] if condition["type"] != EXEC_SESSION]
    await cluster.api.patch(POD, "default", "worker", {"status": {"conditions": others}}, "status")
    end.touch()
    await cluster.phase("worker", "Succeeded")
    assert decode_child(await cluster.api.get(POD, "default", "worker")).status.had_exec == ""


async def test_exec_has_the_environment_and_working_directory_of_the_container(cluster: NodeCluster) -> None:
    env = [{"name": "WORD", "value": "of the pod"}]
    await up(cluster, container={"workingDir": "/usr/share", "env": env})
    script = "import os; print(os.getcwd(), os.environ['WORD'], os.environ['FROM_IMAGE'], os.environ['HOSTNAME'])"
    done = await execute(cluster, "box", "python", "-c", script)
    assert done.out.decode() == "/usr/share of the pod yes box\n"


async def test_every_byte_arrives_in_both_directions(cluster: NodeCluster) -> None:
    await up(cluster)
    sent = random.Random(7).randbytes(3_000_000)
    script = "import sys, hashlib; piece = sys.stdin.buffer.read(); sys.stdout.buffer.write(piece); "
    script += "print(hashlib.sha256(piece).hexdigest(), file=sys.stderr)"
    async with talk(cluster, "box", ["python", "-c", script], ("input", "output", "error")) as session:
        for at in range(0, len(sent), 100_000):
            await session.say(sent[at : at + 100_000])
        await session.end_stdin()
        await session.end()
    assert session.err.decode().strip() == hashlib.sha256(sent).hexdigest()
    assert session.out == sent and session.code == 0


async def test_stdin_and_stdout_of_exec_are_interactive(cluster: NodeCluster) -> None:
    await up(cluster)
    async with talk(cluster, "box", ["cat"], ("input", "output")) as session:
        for line in (b"one\n", b"two\n"):
            await session.say(line)
            await session.read_until(line)
        await session.end_stdin()
        assert (await session.end())["status"] == "Success"


async def test_a_slow_reader_slows_the_program_down(cluster: NodeCluster, state: Path) -> None:
    await up(cluster)
    mark = state / "written"
    script = f"""
import os, sys
for n in range(600):
    os.write(1, b'x' * 65536)
    with open({str(mark)!r}, 'w') as file:
        file.write(str(n))
"""
    async with talk(cluster, "box", ["python", "-c", script], ("output",)) as session:
        await until_exists(mark)
        assert await until_unchanged(mark) < 400
        await session.end(60)
        assert len(session.out) == 600 * 65536


async def test_without_stdin_the_program_reads_an_end(cluster: NodeCluster) -> None:
    await up(cluster)
    assert (await execute(cluster, "box", "python", "-c", "import sys; print(sys.stdin.read() == '')")).out == b"True\n"


async def test_a_terminal_is_a_terminal_and_follows_its_window(cluster: NodeCluster) -> None:
    await up(cluster)
    script = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
signal.signal(signal.SIGWINCH, lambda *_: None)  # one that is ignored by default never waits
print(os.isatty(0), os.isatty(1), os.isatty(2), os.environ['TERM'], os.ttyname(0) != '', flush=True)
signal.sigwait([signal.SIGWINCH])
print('size', *os.get_terminal_size(), flush=True)
print('said', input(), flush=True)
os.kill(os.getpid(), 9) if input() == 'die' else None
"""
    async with talk(cluster, "box", ["python", "-c", script], ("input", "output", "tty")) as session:
        await session.read_until(b"True True True xterm True\r\n")
        await session.resize(123, 45)
        await session.read_until(b"size 123 45")
        await session.say(b"hello\r")
        await session.read_until(b"said hello")
        await session.say(b"die\r")
        await session.end()
    assert session.code == 128 + signal.SIGKILL and session.err == b""


async def test_ctrl_c_in_a_terminal_interrupts(cluster: NodeCluster) -> None:
    await up(cluster)
    script = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_DFL); print('ready', flush=True); "
    script += "time.sleep(600)"
    async with talk(cluster, "box", ["python", "-c", script], ("input", "output", "tty")) as session:
        await session.read_until(b"ready")
        await session.say(b"\x03")
        await session.end()
    assert session.code == 128 + signal.SIGINT


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (["nope"], 127, 'exec: "nope": executable file not found in $PATH'),
        (["/etc/passwd"], 126, 'exec: "/etc/passwd": permission denied'),
        (["/no/such"], 127, 'exec: "/no/such": no such file or directory'),
    ],
)
async def test_a_program_that_cannot_be_executed_is_reported(
    cluster: NodeCluster, command: list[str], code: int, text: str
) -> None:
    await up(cluster)
    done = await execute(cluster, "box", *command)
    assert (done.code, done.err.decode()) == (code, f"{text}\n")
    assert done.status["message"] == f"command terminated with non-zero exit code: {text}"


async def test_the_older_subprotocol_is_supported(cluster: NodeCluster) -> None:
    await up(cluster)
    async with talk(cluster, "box", ["echo", "old"], protocol=V4) as session:
        assert (await session.end())["status"] == "Success" and session.out == b"old\n"


async def test_an_impossible_exec_is_refused_before_the_upgrade(cluster: NodeCluster) -> None:
    await up(cluster)
    await cluster.pod("done", "pass")
    await cluster.phase("done", "Succeeded")
    parameters = query(["true"], ["output"])
    assert await refusal(cluster, "default/none/main", parameters) == (404, "pod default/none is not on this node\n")
    code, text = await refusal(cluster, "default/box/side", parameters)
    assert code == 404 and text.startswith('container not found ("side")')
    code, text = await refusal(cluster, "default/done/main", parameters)
    assert code == 500 and "it is not running (ended)" in text
    assert (await refusal(cluster, "default/box/main", query([], ["output"])))[0] == 400
    code, text = await refusal(cluster, "default/box/main", query(["true"], []))
    assert (code, text) == (400, "you must specify at least 1 of stdin, stdout, stderr\n")
    code, text = await refusal(cluster, "default/box/main", parameters, "")
    assert code == 400 and V5 in text and V4 in text


async def test_exec_needs_the_token(cluster: NodeCluster) -> None:
    await up(cluster)
    with pytest.raises(WSServerHandshakeError) as refused:
        async with talk(cluster, "box", ["true"], token="guess"):
            pass
    assert refused.value.status == 401


@pytest.mark.parametrize("keep", ["", "keep"])
async def test_a_daemon_outlives_its_session_and_dies_with_its_container(
    cluster: NodeCluster, state: Path, keep: str
) -> None:
    await up(cluster)
    mark = state / "daemon"
    command = ["python", "-c", "print('started', flush=True)\n" + DAEMON, str(mark), keep]
    done = await execute(cluster, "box", *command)
    assert (done.code, done.out) == (0, b"started\n")
    await until_exists(mark)
    await assert_daemon_answers(mark)
    await until_async(lambda: len(processes(str(mark))) == 1, "the daemon alone is left")  # those who started it end
    await cluster.api.delete(POD, "default", "box", grace_period_seconds=0)
    await cluster.gone("box")
    await until_no_process(str(mark))


async def test_a_daemon_dies_when_the_containers_program_ends(cluster: NodeCluster, state: Path) -> None:
    go = state / "go"
    await up(cluster, script=f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)")
    mark = state / "daemon"
    await execute(cluster, "box", "python", "-c", DAEMON, str(mark))
    await until_exists(mark)
    go.touch()
    await cluster.phase("box", "Succeeded")
    await until_no_process(str(mark))


async def test_a_session_ends_with_its_container(cluster: NodeCluster) -> None:
    await up(cluster)
    async with talk(cluster, "box", ["sh", "-c", "echo there; sleep 600"]) as session:
        await session.read_until(b"there")
        await cluster.api.delete(POD, "default", "box", grace_period_seconds=0)
        await session.end()
    assert session.code == 137


async def test_a_program_continues_when_its_client_disconnects(cluster: NodeCluster, state: Path) -> None:
    await up(cluster)
    mark = state / "goes-on"
    script = "import os, sys, time; print('up', flush=True); sys.stdin.read(); open(sys.argv[1], 'w').close()"
    async with talk(cluster, "box", ["python", "-c", script, str(mark)], ("input", "output")) as session:
        await session.read_until(b"up\n")  # unbuffered Python writes a line and its end one after the other
    await until_exists(mark)


async def test_many_sessions_at_once_do_not_mix(cluster: NodeCluster) -> None:
    await up(cluster)
    done = await asyncio.gather(*(execute(cluster, "box", "sh", "-c", f"echo {n}; exit {n}") for n in range(20)))
    assert [(answer.out.decode().strip(), answer.code) for answer in done] == [(str(n), n) for n in range(20)]
    assert len(os.listdir("/proc/self/fd")) < 200


@pytest.mark.parametrize("cluster", ["namespace"], indirect=True)
async def test_exec_sees_the_mounts_of_the_container(cluster: NodeCluster) -> None:
    await up(cluster, script="open('/of-the-container', 'w').write('private')\n" + WAITS)
    script = """
import os, socket, time
while not os.path.exists('/of-the-container') or not open('/of-the-container').read():
    time.sleep(0.02)
print(open('/of-the-container').read(), socket.gethostname(), os.path.exists('/proc/1'))
"""
    done = await execute(cluster, "box", "python", "-c", script)
    assert done.out.decode() == "private box True\n"
    ip = (await cluster.api.get(POD, "default", "box"))["status"]["podIP"]
    script = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    assert (await execute(cluster, "box", "python", "-c", script)).out.decode().strip() == ip


@pytest.mark.parametrize("cluster", ["shared"], indirect=True)
async def test_host_names_in_the_arguments_of_exec_are_rewritten_as_in_containers(cluster: NodeCluster) -> None:
    mounts = {"volumeMounts": [{"name": "made", "mountPath": "/made"}]}
    env = [{"name": "PEER", "value": "box:2222"}]
    await up(cluster, container={**mounts, "env": env}, volumes=[{"name": "made", "emptyDir": {}}])
    script = "import os, sys; print(os.environ['PEER'], *sys.argv[1:])"
    done = await execute(cluster, "box", "python", "-c", script, "box:2222", "--out=/made/x", "box.default")
    peer, own, path, name = done.out.decode().split()
    assert peer == own and peer.startswith("127.0.0.1:")
    assert path.startswith("--out=/") and path.endswith("/volumes/made/x") and name == "127.0.0.1"


def test_the_parameters_of_the_kubelets_path() -> None:
    full = ExecRequest.read({"input": "1", "output": "true", "error": "1", "tty": "1"}, ["sh"])
    assert full == ExecRequest(["sh"], stdin=True, stdout=True, stderr=False, tty=True)
    with pytest.raises(ValueError, match="at least 1 command"):
        ExecRequest.read({"output": "1"}, [""])


def test_a_connection_that_ends_without_an_exit_code_is_137_or_an_error() -> None:
    assert ExecResult.read(json.dumps({"pid": 7}).encode() + b"\n") == ExecResult(137, outlived=True)
    never = ExecResult.read(b"").status(["x"])
    assert never["reason"] == "InternalError" and "before the program was started" in never["message"]
