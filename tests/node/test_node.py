"""Pods on a real node, in both networks: how they run, how they end, and their status."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from tests.node.node_cluster import TOKEN, NodeCluster, terminated, waiting
from tests.node.sessions import execute
from tests.support.waiting import until_async
from trainyard.client import ApiClient, ApiError
from trainyard.objects import is_condition_true
from trainyard.objects.resources import CONFIG_MAP, NODE, POD

pytestmark = pytest.mark.slow

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print('up', flush=True)
time.sleep(60)
"""


def restarts(status: dict) -> int:
    return sum(container_status["restartCount"] for container_status in status.get("containerStatuses") or [])


async def test_a_pod_runs_to_its_end_and_its_output_is_its_log(cluster: NodeCluster) -> None:
    await cluster.pod("hello", "import sys; print('out'); print('err', file=sys.stderr)")
    assert sorted((await cluster.result("hello")).split()) == ["err", "out"]


async def test_an_exit_code_is_the_containers(cluster: NodeCluster) -> None:
    await cluster.pod("three", "raise SystemExit(3)")
    pod = await cluster.phase("three", "Failed")
    ended = terminated(pod["status"])
    assert ended is not None
    assert (ended["exitCode"], ended["reason"]) == (3, "Error")
    assert ended["startedAt"] and ended["finishedAt"] and ended["containerID"]
    assert not is_condition_true(pod["status"]["conditions"], "Ready")


async def test_a_finished_pod_has_the_reason_completed(cluster: NodeCluster) -> None:
    await cluster.pod("done", "pass")
    pod = await cluster.phase("done", "Succeeded")
    ended = terminated(pod["status"])
    assert ended is not None and (ended["exitCode"], ended["reason"]) == (0, "Completed")
    assert is_condition_true(pod["status"]["conditions"], "Initialized")


async def test_a_running_pod_is_ready_and_has_an_address_of_its_own_or_the_machines(cluster: NodeCluster) -> None:
    await cluster.pod("up", POLITE)
    pod = await cluster.phase("up", "Running")
    assert is_condition_true(pod["status"]["conditions"], "Ready")
    assert is_condition_true(pod["status"]["conditions"], "PodScheduled")
    assert pod["status"]["podIP"] and not pod["status"]["podIP"].startswith("127.")
    assert pod["status"]["containerStatuses"][0]["ready"] is True
    assert pod["status"]["startTime"]


async def test_a_program_killed_by_a_signal_exits_with_128_and_its_number(cluster: NodeCluster) -> None:
    await cluster.pod("killed", "import os; os.kill(os.getpid(), 9)")
    ended = terminated((await cluster.phase("killed", "Failed"))["status"])
    assert ended is not None and (ended["exitCode"], ended["reason"]) == (137, "Error")


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [(["no-such-program"], 127, "executable file not found in $PATH"), (["/etc/passwd"], 126, "permission denied")],
)
async def test_a_program_that_cannot_be_started_is_named(
    cluster: NodeCluster, command: list[str], code: int, says: str
) -> None:
    await cluster.pod("wrong", container={"command": command})
    ended = terminated((await cluster.phase("wrong", "Failed"))["status"])
    assert ended is not None
    assert (ended["exitCode"], ended["reason"]) == (code, "ContainerCannotRun"), ended["message"]
    assert command[0] in ended["message"] and says in ended["message"]


async def test_a_child_process_that_outlives_its_program_is_killed(cluster: NodeCluster) -> None:
    mark = f"98765.{time.time_ns()}"
    script = f"import subprocess; print(subprocess.Popen(['sleep', '{mark}'], start_new_session=True).pid)"
    await cluster.pod("orphan", script)
    await cluster.phase("orphan", "Succeeded")
    left = [name for name in os.listdir("/proc") if name.isdigit() and mark in _command(name)]
    assert left == []


def _command(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


async def test_programs_that_end_at_once_are_not_lost(cluster: NodeCluster) -> None:
    names = [f"short-{number}" for number in range(20)]
    for name in names:
        await cluster.pod(name, container={"command": ["true"]})
    await asyncio.gather(*(cluster.phase(name, "Succeeded") for name in names))


async def test_init_containers_run_in_order_before_the_others(cluster: NodeCluster) -> None:
    def appending(name: str, code: str) -> dict[str, object]:
        mounts = [{"name": "work", "mountPath": "/work-of-the-pod"}]
        line = f"with open('/work-of-the-pod/log', 'a') as file: {code}"
        return {"name": name, "image": "any", "command": ["python", "-c", line], "volumeMounts": mounts}

    last = appending("main", "print(open(file.name).read() + 'main')")
    inits = [appending("first", "file.write('first ')"), appending("second", "file.write('second ')")]
    await cluster.pod("ordered", initContainers=inits, containers=[last], volumes=[{"name": "work", "emptyDir": {}}])
    assert await cluster.result("ordered") == "first second main\n"


async def test_a_failed_init_container_fails_a_pod_that_never_restarts(cluster: NodeCluster) -> None:
    init = {"name": "init", "image": "any", "command": ["python", "-c", "raise SystemExit(4)"]}
    await cluster.pod("stuck", "print('never')", initContainers=[init])
    pod = await cluster.phase("stuck", "Failed")
    ended = terminated(pod["status"], "init")
    assert ended is not None and ended["exitCode"] == 4
    assert waiting(pod["status"])["reason"] == "PodInitializing"
    with pytest.raises(ApiError, match="waiting to start"):
        await cluster.logs("stuck")


async def test_a_failed_container_is_restarted_at_once_then_waits_and_its_former_log_stays(
    cluster: NodeCluster,
) -> None:
    await cluster.pod("again", "import os; print('run', flush=True); raise SystemExit(5)", restartPolicy="OnFailure")
    pod = await cluster.until("again", lambda status: waiting(status).get("reason") == "CrashLoopBackOff")
    assert restarts(pod["status"]) == 1 and pod["status"]["phase"] == "Running"
    assert "back-off 10s restarting failed container=main" in waiting(pod["status"])["message"]
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 5
    assert await cluster.logs("again") == await cluster.logs("again", previous=True) == "run\n"


async def test_deletion_sends_sigterm_and_the_object_is_removed_after_the_exit(cluster: NodeCluster) -> None:
    await cluster.pod("polite", POLITE)
    await cluster.until("polite", lambda status: status.get("phase") == "Running")
    await printed(cluster, "polite")
    watch = asyncio.create_task(cluster.until("polite", lambda status: terminated(status)))
    await asyncio.sleep(0)
    await cluster.api.delete(POD, "default", "polite", grace_period_seconds=20)
    ended = terminated((await watch)["status"])
    assert ended is not None and ended["exitCode"] == 7
    await cluster.gone("polite", 5)


async def printed(cluster: NodeCluster, name: str) -> bytes:
    """The first line that the pod prints, as soon as it does: an unbuffered `print` is two writes."""
    text = b""
    async for piece in cluster.api.logs("default", name, "main", follow=True):
        text += piece
        if b"\n" in text:
            break
    return text


async def test_a_program_that_ignores_term_is_killed_after_the_grace_period(cluster: NodeCluster) -> None:
    await cluster.pod("stubborn", STUBBORN)
    await cluster.phase("stubborn", "Running")
    await printed(cluster, "stubborn")
    begin = asyncio.get_running_loop().time()
    await cluster.api.delete(POD, "default", "stubborn", grace_period_seconds=1)
    await cluster.gone("stubborn", 10)
    assert 0.9 < asyncio.get_running_loop().time() - begin < 5


async def test_a_forced_deletion_kills_at_once(cluster: NodeCluster) -> None:
    mark = f"76543.{time.time_ns()}"
    await cluster.pod("forced", f"{STUBBORN}  # {mark}")
    await cluster.phase("forced", "Running")
    await cluster.api.delete(POD, "default", "forced", grace_period_seconds=0)
    await until_async(
        lambda: not any(mark in _command(name) for name in os.listdir("/proc") if name.isdigit()),
        "its process is gone",
        seconds=5,
    )


async def test_a_pod_over_its_deadline_fails_with_the_reason(cluster: NodeCluster) -> None:
    await cluster.pod("late", "import time; time.sleep(60)", activeDeadlineSeconds=1, terminationGracePeriodSeconds=1)
    pod = await cluster.phase("late", "Failed")
    assert pod["status"]["reason"] == "DeadlineExceeded"


async def test_a_condition_of_another_writer_stays(cluster: NodeCluster) -> None:
    await cluster.pod("drained", POLITE)
    pod = await cluster.phase("drained", "Running")
    await printed(cluster, "drained")
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    conditions = {"conditions": [*pod["status"]["conditions"], target]}
    await cluster.api.patch(POD, "default", "drained", {"status": conditions}, "status")
    ended = asyncio.create_task(cluster.until("drained", lambda status: terminated(status)))
    await asyncio.sleep(0)
    await cluster.api.delete(POD, "default", "drained", grace_period_seconds=20)
    assert is_condition_true((await ended)["status"]["conditions"], "DisruptionTarget")


async def test_a_missing_config_map_is_waited_for(cluster: NodeCluster) -> None:
    env = [{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "word"}}}]
    await cluster.pod("waits", "import os; print(os.environ['WORD'])", container={"env": env})
    pod = await cluster.until("waits", lambda status: waiting(status).get("reason") == "CreateContainerConfigError")
    assert waiting(pod["status"])["message"] == 'configmap "words" not found'
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"}, "data": {"other": "x"}}
    await cluster.api.create(CONFIG_MAP, "default", body)
    pod = await cluster.until("waits", lambda status: "couldn't find key" in waiting(status).get("message", ""))
    assert waiting(pod["status"])["message"] == "couldn't find key word in ConfigMap default/words"
    await cluster.api.patch(CONFIG_MAP, "default", "words", {"data": {"word": "here"}})
    assert await cluster.result("waits") == "here\n"


async def test_an_unavailable_image_is_a_waiting_reason_and_the_pod_can_be_deleted(cluster: NodeCluster) -> None:
    await cluster.pod("imageless", container={"image": "missing"})
    pod = await cluster.until("imageless", lambda status: waiting(status).get("reason") == "ErrImagePull")
    assert waiting(pod["status"])["message"] == "no such image; write another"
    assert pod["status"]["phase"] == "Pending"
    await cluster.api.delete(POD, "default", "imageless")
    await cluster.gone("imageless", 5)


async def test_an_image_that_takes_long_is_shown_as_being_pulled(cluster: NodeCluster) -> None:
    await cluster.pod("slow", "print('at last')", container={"image": "slow"})
    await cluster.until("slow", lambda status: waiting(status).get("reason") == "PullingImage")
    assert await cluster.result("slow") == "at last\n"


async def test_args_go_to_the_program_of_the_image(cluster: NodeCluster) -> None:
    await cluster.pod("default-args", containers=[{"name": "main", "image": "with-program"}])
    assert await cluster.result("default-args") == "default\n"
    args = ["import os; print('$(WORD)', '$(NO)', '$$(WORD)', os.environ['FROM_IMAGE'])"]
    container = {"name": "main", "image": "with-program", "args": args, "env": [{"name": "WORD", "value": "hi"}]}
    await cluster.pod("own-args", containers=[container])
    assert await cluster.result("own-args") == "hi $(NO) $(WORD) yes\n"


TEMPORARY = """
import os, socket, tempfile, time
folder = tempfile.mkdtemp(prefix='pymp-')
socket.socket(socket.AF_UNIX).bind(folder + '/listener-12345678')
print(sum(name.startswith('pymp-') for name in os.listdir(tempfile.gettempdir())), flush=True)
time.sleep(60)
"""


async def test_each_pod_has_its_own_temporary_folder_with_a_path_short_enough_for_sockets(
    cluster: NodeCluster, state: Path
) -> None:
    """Two MPI daemons of one job in one such folder take away what the other needs."""
    for name in ("one", "two"):
        await cluster.pod(name, TEMPORARY)
        await cluster.phase(name, "Running")
        assert await printed(cluster, name) == b"1\n"
    for name in ("one", "two"):
        await cluster.api.delete(POD, "default", name)
        await cluster.gone(name)
    assert not (names := state / "t").exists() or not os.listdir(names)


async def test_the_runners_environment_stays_outside(cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_RUNNER", "x")
    await cluster.pod("clean", "import os; print('A_SECRET_OF_THE_RUNNER' in os.environ, os.getcwd(), os.getuid())")
    assert await cluster.result("clean") == f"False / {os.getuid()}\n"


async def test_a_program_starts_with_default_signal_dispositions(cluster: NodeCluster) -> None:
    script = """
import signal as s
print([s.getsignal(number) for number in (s.SIGHUP, s.SIGTERM, s.SIGCHLD)] == [s.SIG_DFL] * 3)
print(s.getsignal(s.SIGINT) is s.default_int_handler, s.pthread_sigmask(s.SIG_BLOCK, []))
"""
    await cluster.pod("plain", script)
    assert await cluster.result("plain") == "True\nTrue set()\n"


async def test_a_working_directory_is_where_the_program_starts(cluster: NodeCluster) -> None:
    await cluster.pod("elsewhere", "import os; print(os.getcwd())", container={"workingDir": "/usr/share"})
    assert await cluster.result("elsewhere") == "/usr/share\n"


async def test_an_unsupported_field_is_reported_once_and_ignored(cluster: NodeCluster) -> None:
    limits = {"resources": {"limits": {"example.com/gpu": "1", "cpu": "1"}}, "securityContext": {"privileged": True}}
    for name in ("gpu-1", "gpu-2"):
        await cluster.pod(name, "print('fine')", container=limits)
        assert await cluster.result(name) == "fine\n"
    assert len([line for line in cluster.lines if "example.com/gpu" in line]) == 1
    assert len([line for line in cluster.lines if "privileged" in line]) == 1


async def test_sidecars_run_beside_the_containers_and_end_after_them(cluster: NodeCluster) -> None:
    """The order in which programs of one pod started and ended, from a file that all of them write."""

    def container(name: str, script: str, **fields: object) -> dict:
        mounts = [{"name": "shared", "mountPath": "/shared-by-all"}]
        return {"name": name, "image": "any", "command": ["sh", "-c", script], "volumeMounts": mounts, **fields}

    def sidecar(name: str) -> dict:
        ending = f"echo {name} ends >> /shared-by-all/log; cat /shared-by-all/log; exit 0"
        script = f"trap '{ending}' TERM; echo {name} >> /shared-by-all/log; while :; do sleep 0.02; done"
        return container(name, script, restartPolicy="Always")

    # A sidecar counts as started while its program begins to run: the init container waits for its line.
    wait = "until grep -q first /shared-by-all/log; do sleep 0.02; done"
    init = container("init", f"{wait}; echo init >> /shared-by-all/log")
    main = container(
        "main", "until grep -q second /shared-by-all/log; do sleep 0.02; done; echo main >> /shared-by-all/log"
    )
    inits = [sidecar("first"), init, sidecar("second")]
    await cluster.pod("order", containers=[main], initContainers=inits, volumes=[{"name": "shared", "emptyDir": {}}])
    pod = await cluster.phase("order", "Succeeded")
    expected = ["first", "init", "second", "main", "second ends", "first ends"]
    assert (await cluster.logs("order", container="first")).splitlines() == expected
    assert [status["restartCount"] for status in pod["status"]["initContainerStatuses"]] == [0, 0, 0]


def rule(action: str, code: int) -> dict:
    rules = [{"action": action, "exitCodes": {"operator": "In", "values": [code]}}]
    return {"restartPolicy": "Never", "restartPolicyRules": rules}


async def test_a_container_is_restarted_in_place_by_its_rule(cluster: NodeCluster) -> None:
    script = "cd $TMPDIR; test -e ran && exit 0; touch ran; exit 42"
    await cluster.pod("again", container={"command": ["sh", "-c", script], **rule("Restart", 42)})
    pod = await cluster.phase("again", "Succeeded")
    (main,) = pod["status"]["containerStatuses"]
    assert main["restartCount"] == 1 and main["lastState"]["terminated"]["exitCode"] == 42


async def test_all_containers_are_restarted_in_place_with_new_values_of_annotations(cluster: NodeCluster) -> None:
    """A rank that exits with "try again" restarts its whole pod: init containers, and those that had ended, too."""
    mounts = {"image": "any", "volumeMounts": [{"name": "shared", "mountPath": "/shared-by-all"}]}
    attempt = {"name": "ATTEMPT", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['attempt']"}}}

    def container(name: str, script: str, **fields: object) -> dict:
        return {"name": name, "command": ["sh", "-c", script], "env": [attempt], **mounts, **fields}

    init = container("init", "echo init $ATTEMPT >> /shared-by-all/log")
    side = container("side", "trap 'exit 0' TERM; while :; do sleep 0.02; done", restartPolicy="Always")
    ended = container("ended", "exit 0")
    wait = "until test -e /shared-by-all/go; do sleep 0.02; done"
    script = f"cat /shared-by-all/log; test $ATTEMPT = 2 && exit 0; {wait}; exit 88"
    main = container("main", script, **rule("RestartAllContainers", 88))
    await cluster.pod(
        "gang",
        containers=[ended, main],
        initContainers=[init, side],
        volumes=[{"name": "shared", "emptyDir": {}}],
        metadata={"annotations": {"attempt": "1"}},
    )
    first = await cluster.until("gang", lambda status: terminated(status, "ended") and status["phase"] == "Running")
    await cluster.api.patch(POD, "default", "gang", {"metadata": {"annotations": {"attempt": "2"}}})
    await execute(cluster, "gang", "sh", "-c", "touch /shared-by-all/go")
    pod = await cluster.phase("gang", "Succeeded")
    statuses = [*pod["status"]["initContainerStatuses"], *pod["status"]["containerStatuses"]]
    assert [status["restartCount"] for status in statuses] == [1, 1, 1, 1]
    assert {status["lastState"]["terminated"]["reason"] for status in statuses} == {"RestartingAllContainers"}
    assert pod["metadata"]["uid"] == first["metadata"]["uid"] and pod["status"]["podIP"] == first["status"]["podIP"]
    assert await cluster.logs("gang", container="main") == "init 1\ninit 2\n"


async def test_the_node_object_has_the_nodes_properties(cluster: NodeCluster) -> None:
    status = (await cluster.api.get(NODE, "", "local"))["status"]
    assert is_condition_true(status["conditions"], "Ready")
    assert {"type": "InternalIP", "address": "127.0.0.1"} in status["addresses"]
    assert int(status["capacity"]["cpu"]) >= 1 and status["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0


async def test_containers_of_a_killed_supervisor_are_started_again(cluster: NodeCluster) -> None:
    script = "import time; print('up', flush=True); time.sleep(60)"
    await cluster.pod("lasting", script, restartPolicy="Always")
    await cluster.pod("once", script)
    await cluster.phase("lasting", "Running")
    await cluster.phase("once", "Running")
    sandbox = cluster.node._context.sandbox  # type: ignore[union-attr]
    os.kill(sandbox.supervisor.pid, signal.SIGKILL)  # type: ignore[union-attr]
    pod = await cluster.until("lasting", lambda status: restarts(status) == 1 and status["phase"] == "Running")
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 137
    ended = terminated((await cluster.phase("once", "Failed"))["status"])
    assert ended is not None and (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    await cluster.pod("after", "print('goes on')")
    assert await cluster.result("after") == "goes on\n"


async def test_a_killed_init_is_not_reported_as_the_end_of_its_program(cluster: NodeCluster) -> None:
    await cluster.pod("once", "import time; print('of a killed init', flush=True); time.sleep(60)")
    await cluster.phase("once", "Running")
    await printed(cluster, "once")
    (init,) = parents_of(b"of a killed init")
    os.kill(init, signal.SIGKILL)
    ended = terminated((await cluster.phase("once", "Failed"))["status"])
    assert ended is not None and (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")


def parents_of(program: bytes) -> set[int]:
    """The parents of the processes with that text in their command line."""
    parents = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if program in (process / "cmdline").read_bytes():
                parents.add(int((process / "stat").read_text().rpartition(")")[2].split()[1]))
    return parents


async def test_a_stopping_node_lets_programs_end_by_themselves(cluster: NodeCluster) -> None:
    await cluster.pod("ends", POLITE)
    await cluster.phase("ends", "Running")
    await printed(cluster, "ends")
    async with asyncio.timeout(5):
        await cluster.node.stop()


async def test_logs_need_the_token(cluster: NodeCluster) -> None:
    await cluster.pod("secret", "print('x')")
    await cluster.phase("secret", "Succeeded")
    port = (await cluster.api.get(NODE, "", "local"))["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    path = "/containerLogs/default/secret/main"
    async with ApiClient(f"http://127.0.0.1:{port}", TOKEN) as known:
        assert await known.request("GET", path) == b"x\n"
    async with ApiClient(f"http://127.0.0.1:{port}", "guess") as stranger:
        with pytest.raises(ApiError) as refused:
            await stranger.request("GET", path)
        assert refused.value.code == 401


async def test_a_followed_log_ends_with_its_container(cluster: NodeCluster) -> None:
    script = "import sys, time\nfor n in range(3): print(n, flush=True); time.sleep(0.2)"
    await cluster.pod("counting", script)
    await cluster.phase("counting", "Running")
    assert await cluster.logs("counting", follow=True) == "0\n1\n2\n"
    assert await cluster.logs("counting", tail_lines=1) == "2\n"
