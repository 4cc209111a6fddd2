"""The commands about jobs, run in this process against a real cluster, also in this process."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from random import Random

import aiohttp
import pytest
import yaml

from tests.cli.commands import (
    SLEEP,
    chainer,
    commands_of_cluster,
    container,
    elastic,
    role,
    run_in_process,
    tfjob,
)
from tests.faults.proxy import Journal, Proxy, Rates
from tests.support.waiting import until_async
from trainyard.app.kubeconfig import ClusterAccess
from trainyard.app.local import kubeconfig
from trainyard.server import Server

pytestmark = pytest.mark.slow


async def test_the_commands_through_the_life_of_a_job(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        assert await trainyard("get") == (0, "", "There are no jobs in namespace default.\n")
        assert await trainyard.submit(tfjob(role("MASTER", SLEEP), role("WORKER", SLEEP, 2))) == (
            0,
            "tfjob/mnist created\n",
            "",
        )
        listed = (await trainyard.until("Running  3/3", "get")).out.splitlines()
        assert listed[0].split() == ["KIND", "NAME", "STATE", "RUNNING", "RESTARTS", "AGE"]
        assert listed[1].split()[:5] == ["TfJob", "mnist", "Running", "3/3", "0"]
        assert "worker: 2 Running" in (await trainyard("get", "tfjobs", "-o", "wide")).out
        page = (await trainyard("describe", "mnist")).out
        for part in (
            "Kind:       TfJob (tensorflow.org/v1alpha1)",
            "WORKER  2",
            "worker-1  Running",
            "Service  tfjob-",
        ):
            assert part in page
        assert "JobRunning" in (await trainyard("events", "mnist")).out
        assert "it runs fine" in (await trainyard("why", "tfjob/mnist")).out
        assert (await trainyard("suspend", "mnist")).out == "tfjob/mnist suspended\n"
        await trainyard.until("Suspended  0/3", "get")
        assert (await trainyard("suspend", "mnist")).out == "tfjob/mnist is suspended already\n"
        assert "trainyard resume tfjob/mnist" in (await trainyard("why", "mnist")).out
        assert (await trainyard("resume", "mnist")).out == "tfjob/mnist resumed\n"
        await trainyard.until("3/3", "get")
        assert (await trainyard("delete", "mnist", "--wait")).out == "tfjob/mnist deleted\n"
        assert (await trainyard("get", "mnist")).code == 1


@pytest.mark.slow
async def test_every_form_of_output(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        await trainyard.submit(tfjob(name="a"), {**elastic(name="b"), "metadata": {"name": "b", "namespace": "other"}})
        assert (
            await trainyard("get", "-A", "-o", "name")
        ).out == "tfjob.tensorflow.org/a\nelasticjob.elastic.pytorch.org/b\n"
        assert [item["kind"] for item in json.loads((await trainyard("get", "-A", "-o", "json")).out)["items"]] == [
            "TfJob",
            "ElasticJob",
        ]
        assert yaml.safe_load((await trainyard("get", "tfjob", "a", "-o", "yaml")).out)["metadata"]["name"] == "a"
        assert (await trainyard("get", "-A")).out.splitlines()[2].split()[:3] == ["other", "ElasticJob", "b"]
        await trainyard.until("JobRunning", "events")
        assert json.loads((await trainyard("events", "-o", "json")).out)["kind"] == "List"
        assert (await trainyard("events", "a", "-o", "name")).out.startswith("event/a.")
        assert "SOURCE" in (await trainyard("events", "a", "-o", "wide")).out
        document = json.loads((await trainyard.until('"level": "fine"', "why", "a", "-o", "json")).out)
        assert document["job"] == "TfJob default/a"


@pytest.mark.slow
async def test_an_unknown_name_is_answered_with_the_existing_ones(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        assert "the namespace has no jobs" in (await trainyard("describe", "x")).err
        await trainyard.submit(tfjob(name="mnist"), {**tfjob(), "metadata": {"name": "far", "namespace": "other"}})
        code, out, err = await trainyard("why", "mnits")
        assert (code, out) == (1, "") and "did you mean tfjob/mnist?" in err
        assert "but there is tfjob/far in other: write -n other" in (await trainyard("logs", "far")).err
        refused = await trainyard("delete", "zzzzzz", "mnist", "mxjob/mnist", "--wait")
        assert refused.err.splitlines()[:2] == [
            "there is no job zzzzzz in namespace default; there are: tfjob/mnist",
            "there is no job mnist in namespace default; the namespace has no MxJob",
        ]
        assert "mnist" in (await trainyard("get")).out
        assert (await trainyard("delete", "mnist", "--timeout", "3")).code == 2
        assert (await trainyard("get", "pods")).code == 2 and (await trainyard("get", "nonsense/a")).code == 2
        assert (await trainyard("get", "mnist", "-A")).code == 2
        missing = await trainyard("submit", str(tmp_path / "given.yaml"), "-n", "nowhere")
        assert missing.code == 2 and "is other, but --namespace says nowhere" in missing.err


async def test_a_name_of_two_jobs_is_not_guessed(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        await trainyard.submit(tfjob(name="same"), elastic(name="same"))
        code, _, err = await trainyard("delete", "same")
        assert code == 2 and "tfjob/same, elasticjob/same" in err
        assert (await trainyard("delete", "elasticjob/same", "tfjobs.tensorflow.org/same")).code == 0


@pytest.mark.slow
async def test_scale_resizes_an_elastic_job_and_refuses_other_kinds_with_the_reason(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        await trainyard.submit(elastic(), tfjob(), chainer())
        await trainyard.until("2/2", "get", "elasticjobs")
        assert (await trainyard("scale", "imagenet", "3")).out == "elasticjob/imagenet scaled from 2 to 3\n"
        await trainyard.until("3/3", "get", "elasticjobs")
        assert (await trainyard("scale", "imagenet", "worker=2")).out == "elasticjob/imagenet scaled from 3 to 2\n"
        code, _, err = await trainyard("scale", "imagenet", "9")
        assert code == 1 and "must not be above maxReplicas" in err
        for size, message in (("PS=2", "has no role PS; it has: Worker"), ("two", "is not a size"), ("-1", "-1")):
            code, _, err = await trainyard("scale", "imagenet", size)
            assert code == 2 and message in err, size
        assert (await trainyard("suspend", "imagenet")).out == "elasticjob/imagenet suspended\n"
        await trainyard.until("Suspended  0/2", "get", "imagenet")
        code, _, err = await trainyard("scale", "mnist", "2")
        assert code == 1 and "fixed once it has started" in err and "trainyard suspend tfjob/mnist" in err
        assert "it follows the edit" in (await trainyard("scale", "chain", "ws=3")).err


@pytest.mark.slow
async def test_the_pods_of_a_worker_set_are_replicas_of_their_own_number(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        await trainyard.submit(chainer())
        page = (await trainyard.until("ws-1", "describe", "chain")).out
        assert "chain-workerset-ws-1" in page and "StatefulSet" in page


async def test_why_reports_the_problem_of_each_replica(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        bad = tfjob(role("MASTER", SLEEP), role("WORKER", "import nothing_here", 2), role("PS", None))
        bad["spec"]["replicaSpecs"][2]["template"]["spec"]["containers"][0]["image"] = "nobody/knows:1"
        await trainyard.submit(bad)
        ps = "ps-0: it has no command, and no catalogue says which program its image nobody/knows:1 starts"
        error = "ModuleNotFoundError: No module named 'nothing_here'"
        fix = f"`{sys.executable} -m pip install nothing_here`"
        await trainyard.until(
            (ps, "worker-0, worker-1: ", error, fix, "is started again", "container tensorflow"), "why", "mnist"
        )


@pytest.mark.slow
async def test_why_reports_a_rendezvous_without_a_server(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        await trainyard.submit(elastic())
        page = (await trainyard.until("there is no Service etcd-service", "why", "imagenet")).out
        assert "where: spec.rdzvEndpoint: etcd-service:2379" in page


async def test_submit_reports_every_problem_with_its_place_and_sends_nothing(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        code, out, err = await trainyard.submit(
            tfjob(name="good"), elastic(replicas=9), tfjob(role("PS", SLEEP), name="bad")
        )
        assert (code, out) == (2, "")
        assert "given.yaml" in err and "maxReplicas" in err and "1 master" in err
        assert "no jobs" in (await trainyard("get")).err
        (tmp_path / "good.yaml").write_text(yaml.safe_dump(tfjob()))
        code, _, err = await trainyard("submit", str(tmp_path / "good.yaml"), "-n", "nowhere")
        assert code == 2 and "kubectl create namespace nowhere" in err
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
        assert (await trainyard.submit(config)).code == 0
        assert (await trainyard.submit(tfjob())).code == 0
        code, _, err = await trainyard.submit(tfjob())
        assert code == 1 and "given.yaml:4: metadata.name: tfjob/mnist exists already in default" in err
        generated = tfjob()
        generated["metadata"] = {"generateName": "mnist-"}
        created = (await trainyard.submit(generated)).out.split()[0]
        assert created.startswith("tfjob/mnist-") and created.removeprefix("tfjob/") in (await trainyard("get")).out


async def test_delete_names_the_pods_that_have_not_ended_in_time(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = (
        f"import pathlib, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\npathlib.Path({str(ready)!r}).touch()"
    )
    master = role("MASTER", f"{code}\nsignal.pause()")
    master["template"]["spec"]["terminationGracePeriodSeconds"] = 3
    async with commands_of_cluster(tmp_path) as trainyard:
        await trainyard.submit(tfjob(master))
        await until_async(ready.exists, "the program ignores SIGTERM")
        exit_code, out, err = await trainyard("delete", "mnist", "--wait", "--timeout", "0.5")
        assert (exit_code, out) == (124, "tfjob/mnist deleted\n")
        assert re.match(r"pods have not ended within --timeout 0.5: tfjob/mnist has master-\S+; ", err), err
        assert "kubectl get pods -n default" in err


@pytest.mark.slow
async def test_submit_waits_for_the_end_and_its_code_is_the_jobs(tmp_path: Path) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        good = await trainyard.submit(tfjob(role("MASTER", "print(1)"), name="good"), arguments=("--wait",))
        assert good.code == 0 and "TfJob default/good: Succeeded" in good.out
        bad = await trainyard.submit(tfjob(role("MASTER", "raise SystemExit(3)"), name="bad"), arguments=("--wait",))
        assert bad.code == 1 and "Failed" in bad.out and "master-0 ended with exit code 3" in bad.err
        slow = await trainyard.submit(tfjob(name="slow"), arguments=("--wait", "--timeout", "1"))
        assert slow.code == 124
        assert "has ended (Failed)" in (await trainyard("suspend", "bad")).err


@pytest.mark.slow
async def test_logs_of_all_of_one_and_of_the_run_before(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        code = "import os,time\nprint('one')\nprint('two')\ntime.sleep(600)"
        await trainyard.submit(tfjob(role("MASTER", code), role("WORKER", "print('again')\nraise SystemExit(7)", 2)))

        async def shown(*arguments: str) -> str:
            capfd.readouterr()
            assert (await trainyard("logs", "mnist", *arguments)).code == 0
            return capfd.readouterr().out

        again = {"worker-0 | again", "worker-1 | again"}
        await until_async(
            lambda: shown("-p"), "both workers were restarted", accept=lambda out: again < set(out.split("\n"))
        )
        await until_async(shown, "the master has printed", accept=lambda out: "master-0 | two" in out)
        lines = (await shown()).splitlines()
        assert lines[:2] == ["master-0 | one", "master-0 | two"] and again < set(lines)
        assert await shown("--role", "MASTER", "--index", "0") == "one\ntwo\n"
        assert await shown("--role", "master", "--tail", "1") == "master-0 | two\n"
        assert "worker-1 | again" in await shown("-p", "--role", "worker")
        assert "master" not in await shown("-p")
        for arguments, message in (
            (("--role", "chief"), "has no role chief; it has: master, worker"),
            (("--index", "7"), "has no replica with index 7; it has: master-0, worker-0 to worker-1"),
            (("-f", "--role", "worker", "--index", "2"), "index 2; it has: worker-0 to worker-1"),
            (("-f", "-c", "sidecar"), "has no container sidecar; it has: tensorflow"),
        ):
            refused = await trainyard("logs", "mnist", *arguments)
            assert refused.code == 2 and message in refused.err, refused
        assert (await trainyard("logs", "mnist", "-f", "-p")).code == 2


@pytest.mark.slow
async def test_logs_are_followed_to_the_last_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        waits = "import os,time\nprint('begins')\nwhile not os.path.exists({!r}): time.sleep(.05)\nprint('ends')"
        gate = tmp_path / "gate"
        await trainyard.submit(tfjob(role("MASTER", waits.format(str(gate))), role("WORKER", SLEEP)))
        await trainyard.until("2/2", "get")
        capfd.readouterr()
        following = asyncio.create_task(trainyard("logs", "-f", "mnist"))
        await trainyard.until("Running", "get")
        gate.touch()
        assert (await asyncio.wait_for(following, 20)).code == 0
        lines = capfd.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("master-0")] == ["master-0 | begins", "master-0 | ends"]


async def test_logs_prefix_pods_with_init_containers_as_run_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with commands_of_cluster(tmp_path) as trainyard:
        master = role("MASTER", "print('trains')")
        master["template"]["spec"]["initContainers"] = [container("fetch-the-data", "print('fetched')")]
        await trainyard.submit(tfjob(master))
        await trainyard.until("Succeeded", "get")
        capfd.readouterr()
        assert (await trainyard("logs", "mnist")).code == 0
        assert capfd.readouterr().out.splitlines() == ["master-0/fetch-the-data | fetched", "master-0 | trains"]


def test_without_a_cluster_the_error_names_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for line in (("get",), ("why", "x"), ("logs", "x"), ("delete", "x"), ("scale", "x", "2"), ("events",)):
        code, out, err = run_in_process(*line)
        assert (code, out) == (3, "") and "trainyard up" in err, line


@pytest.mark.slow
async def test_an_unreachable_or_unauthorized_cluster_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "k"
    path.write_text(yaml.safe_dump(kubeconfig("https://127.0.0.1:9", "token", "")))
    code, _, err = await asyncio.to_thread(run_in_process, "get", "--kubeconfig", str(path))
    assert code == 3 and "https://127.0.0.1:9 does not answer" in err and str(path) in err
    async with commands_of_cluster(tmp_path) as trainyard:
        text = trainyard.kubeconfig.read_text().replace(trainyard.cluster.token, "wrong")
        trainyard.kubeconfig.write_text(text)
        code, _, err = await trainyard("get")
        assert code == 3 and "rejects the credentials" in err


async def test_a_cluster_without_the_crds_is_reported(tmp_path: Path) -> None:
    server = Server({}, "token", lambda: 0.0)
    await server.start()
    try:
        path = tmp_path / "k"
        config = kubeconfig(server.url, "token", "")
        config["users"][0]["user"] = {"token": "token"}
        config["clusters"][0]["cluster"] = {"server": server.url}
        path.write_text(yaml.safe_dump(config))
        code, _, err = await asyncio.to_thread(run_in_process, "get", "--kubeconfig", str(path))
        assert code == 3 and "install them: trainyard manifests" in err
    finally:
        await server.stop()


class Busy(Proxy):
    """Answers 429 three times before it lets a request through."""

    def _fault(self, rate: float, faults: tuple[str, ...]) -> str:
        if self.journal.faults.get("429", 0) == 3:
            return ""
        self.journal.injected("429")
        return "429"


async def test_get_retries_after_too_many_requests(tmp_path: Path) -> None:
    async with (
        commands_of_cluster(tmp_path) as trainyard,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
    ):
        await trainyard.submit(tfjob())
        config = yaml.safe_load(trainyard.kubeconfig.read_text())
        upstream = config["clusters"][0]["cluster"]["server"]
        busy = Busy("get", lambda: upstream, session, Journal(), Rates(), Random(0))
        await busy.start()
        config["clusters"][0]["cluster"] = {"server": busy.url}
        trainyard.kubeconfig.write_text(yaml.safe_dump(config))
        answer = await trainyard("get")
        await busy.stop()
    assert (answer.code, answer.err) == (0, "") and "mnist" in answer.out
    assert busy.journal.faults == {"429": 3}


def test_an_address_is_printed_without_its_path() -> None:
    from trainyard.cli.command.cluster_command import _scheme_and_host

    assert _scheme_and_host(ClusterAccess("http://127.0.0.1:5/secret").server) == "http://127.0.0.1:5"
