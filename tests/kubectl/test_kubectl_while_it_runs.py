"""Commands of kubectl that go on while something happens: watches, followed logs, terminals, waits, an editor."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.kubectl.kubectl_clusters import Person
from tests.kubectl.terminals import running, terminal

pytestmark = pytest.mark.cluster


def ready(person: Person, name: str) -> None:
    person("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def test_a_watch_prints_changes(person: Person) -> None:
    person.apply("maps")
    with running(person, "get", "cm", "-w", "-l", "app=maps", "-L", "tier", "--output-watch-events") as watch:
        watch.read_until(r"ADDED +two +1 +\S+ +back\n")
        person("label", "cm", "one", "tier=front")
        watch.read_until(r"MODIFIED +one +2 +\S+ +front\n")
        person("label", "cm", "two", "app-")
        watch.read_until(r"DELETED +two +1 ")
        person("delete", "cm", "one")
        watch.read_until(r"DELETED +one +2 ")


def test_a_table_is_watched_line_by_line(person: Person) -> None:
    person("run", "before", "--image=busybox", "--restart=Never", "--command", "--", "true")
    with running(person, "get", "pods", "-w", "--no-headers") as watch:
        watch.read_until("before +[01]/1 ")  # now it watches
        person.apply("web")
        watch.read_until(r"web +0/2 +(Pending|ContainerCreating)")
        watch.read_until(r"web +2/2 +Running")
        person("delete", "pod", "web", "--wait=false")
        watch.read_until(r"web +2/2 +Terminating")


def test_logs_are_followed_to_the_end(person: Person) -> None:
    script = "echo one; until [ -e /tmp/$0 ]; do sleep 0.05; done; rm /tmp/$0; echo two"
    go = f"{person.namespace}-go"
    person("run", "talks", "--image=busybox", "--restart=Never", "--command", "--", "/bin/sh", "-c", script, go)
    ready(person, "talks")
    with running(person, "logs", "-f", "talks") as log:
        log.read_until("^one\n")
        person.go()
        log.read_until("^two\n")
        assert log.rest() == "" and log.code() == 0


def test_the_log_of_the_run_before_is_kept(person: Person) -> None:
    person.apply("returns")
    person("wait", "--for=jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/returns", "--timeout=60s")
    ready(person, "returns")
    assert person("logs", "returns", "-p") == "first\n"
    assert person.until("logs", "returns", says="second").out == "second\n"
    assert person("get", "pod", "returns", "--no-headers").split()[1:4] == ["1/1", "Running", "1"]


def test_a_terminal_is_resized_and_its_exit_code_is_returned(person: Person) -> None:
    person.apply("web")
    ready(person, "web")
    # It may start before it has its first size, which then comes as a change.
    waits = (
        'trap \'stty size; test "$(stty size)" != "33 101" || exit 7\' WINCH; stty size; while :; do sleep 0.05; done'
    )
    arguments = ("exec", "-it", "web", "-c", "side", "--", "/bin/sh", "-c", waits)
    with terminal(person, *arguments, rows=24, columns=80) as shell:
        shell.read_until("24 80\r\n")
        shell.resize(33, 101)
        shell.read_until("33 101\r\n", meanwhile=shell.changed)
        assert shell.code() == 7


def test_a_terminal_forwards_input(person: Person) -> None:
    person.apply("web")
    ready(person, "web")
    with terminal(person, "exec", "-it", "web", "-c", "side", "--", "/bin/sh") as shell:
        shell.read_until("[#$] ")  # it asks for a line: both terminals are as they will be
        shell.type("echo $((40 + 2))\n")
        shell.read_until("42\r\n")
        shell.read_until("[#$] ")
        shell.type("\x04")  # the end of what is typed
        assert shell.code() == 0


def test_stdin_and_its_end_are_forwarded(person: Person) -> None:
    person.apply("web")
    ready(person, "web")
    many = "".join(f"line {number}\n" for number in range(20_000))
    assert person("exec", "-i", "web", "-c", "side", "--", "cat", stdin=many) == many
    assert person("exec", "-i", "web", "-c", "side", "--", "wc", "-l", stdin=many).strip() == "20000"


def test_files_are_copied_both_ways(person: Person) -> None:
    person.apply("web")
    ready(person, "web")
    there = f"/tmp/{person.namespace}-copied"
    (person.home / "some").write_text("words\n")
    person("cp", "some", f"web:{there}", "-c", "side")
    assert person("exec", "web", "-c", "side", "--", "cat", there) == "words\n"
    person("cp", f"web:{there}", "back", "-c", "side")
    assert (person.home / "back").read_text() == "words\n"
    person("exec", "web", "-c", "side", "--", "rm", there)


def test_attach_prints_the_output_of_the_container(here: Person) -> None:
    """A real API server asks the node in SPDY or by WebSocket, as its version has it; here it is always a WebSocket."""
    script = "until [ -e /tmp/$0 ]; do echo waiting; sleep 0.05; done; rm /tmp/$0; echo end"
    go = f"{here.namespace}-go"
    here("run", "talks", "--image=busybox", "--restart=Never", "--command", "--", "/bin/sh", "-c", script, go)
    ready(here, "talks")
    with running(here, "attach", "talks") as attached:
        attached.read_until("waiting\n")
        here.go()
        attached.read_until("end\n")
        assert attached.rest() == "" and attached.code() == 0
    here("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talks", "--timeout=60s")
    assert "completed pod" in here.refused("attach", "talks")
    assert here("logs", "talks").endswith("waiting\nend\n")


def test_a_wait_ends_when_the_object_has_gone(person: Person) -> None:
    person.apply("web")
    ready(person, "web")
    arguments = ("wait", "-v=6", "--for=delete", "pod/web", "--timeout=60s")
    with running(person, *arguments, stderr=subprocess.STDOUT) as wait:
        wait.read_until("watch=true")  # what it asks for is written there
        person("delete", "pod", "web", "--wait=false")
        assert "condition met" in wait.rest() and wait.code() == 0
    with running(person, "wait", "--for=create", "cm/later", "--timeout=60s") as wait:
        person("create", "configmap", "later")
        assert "condition met" in wait.rest() and wait.code() == 0


def test_an_object_is_edited_and_a_bad_edit_is_given_back(person: Person) -> None:
    person.apply("maps")
    edited = editor(person.home, "text.replace('color: blue', 'color: green')")
    assert "configmap/one edited" in person("edit", "cm", "one", EDITOR=edited)
    assert person("get", "cm", "one", "-o", "jsonpath={.data.color}") == "green"
    assert "no changes made" in person.run("edit", "cm", "one", EDITOR=editor(person.home, "text")).output
    bad = editor(person.home, "text.replace('name: one', 'name: other')")
    assert "one" in person.refused("edit", "cm", "one", EDITOR=bad)


def editor(folder: Path, change: str) -> str:
    """A program that edits a file."""
    path = folder / "editor"
    path.write_text(f"#!{sys.executable}\nimport sys\ntext = open(sys.argv[1]).read()\n"
                    f"open(sys.argv[1], 'w').write({change})\n")  # fmt: skip
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_rollout_status_waits_for_the_rollout(person: Person) -> None:
    person.apply("sets")
    person("rollout", "status", "deployment/many", "--timeout=60s")
    person("set", "env", "deployment/many", "A=b")
    assert "successfully rolled out" in person("rollout", "status", "deployment/many", "--timeout=60s")
    pods = json.loads(person("get", "pods", "-l", "app=many", "-o", "json"))["items"]
    live = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    assert [pod["spec"]["containers"][0]["env"] for pod in live] == [[{"name": "A", "value": "b"}]] * 2
    assert "restarted" in person("rollout", "restart", "deployment/many")


def test_events_show_the_life_of_a_job(person: Person) -> None:
    person.apply("tfjob")
    with running(person, "events", "--watch", "--for=tfjobs.tensorflow.org/mnist") as events:
        person("wait", "--for=condition=Running", "tfjobs.tensorflow.org/mnist", "--timeout=60s")
        events.read_until("JobRunning")
        person.go()
        person("wait", "--for=condition=Succeeded", "tfjobs.tensorflow.org/mnist", "--timeout=60s")
        events.read_until("JobSucceeded")
    assert "JobSucceeded" in person("events", "--for=tfjobs.tensorflow.org/mnist", "--types=Normal")
    assert "No events" in person.run("events", "--for=tfjobs.tensorflow.org/mnist", "--types=Warning").output
    assert "JobSucceeded" in person("get", "events", "--field-selector=involvedObject.name=mnist")


def test_a_token_authenticates_its_service_account_only(person: Person) -> None:
    person("create", "serviceaccount", "robot")
    person("create", "rolebinding", "robot", "--clusterrole=view", f"--serviceaccount={person.namespace}:robot")
    token = person("create", "token", "robot", "--duration=10m").strip()
    config = yaml.safe_load(person("config", "view", "--minify", "--flatten", "--raw"))
    config["users"][0]["user"] = {"token": token}
    path = person.home / f"{person.namespace}.yaml"
    path.write_text(yaml.safe_dump(config))
    robot = Person(person.program, path, person.home, person.namespace, person.node)
    assert "robot" in robot("auth", "whoami")
    robot.until("get", "cm", "-o", "name", says="kube-root-ca.crt")  # a binding holds a moment later
    assert "cannot create" in robot.refused("create", "configmap", "x")
    config["users"][0]["user"] = {"token": "wrong"}
    path.write_text(yaml.safe_dump(config))
    assert "Unauthorized" in robot.refused("get", "cm") or "logged in" in robot.refused("get", "cm")


def test_kubectl_config_reads_and_changes_a_kubeconfig(here: Person) -> None:
    path = here.home / f"{here.namespace}-config"
    path.write_bytes(here.config.read_bytes())
    path.chmod(0o600)
    own = Person(here.program, path, here.home, here.namespace, here.node)
    assert "trainyard" in own("config", "get-contexts", "-o", "name")
    own("config", "set-context", "elsewhere", "--cluster=trainyard", "--user=trainyard", "--namespace=kube-system")
    own("config", "use-context", "elsewhere")
    assert own("config", "view", "--minify", "-o", "jsonpath={..namespace}") == "kube-system"
    assert path.stat().st_mode & 0o077 == 0
    assert "REDACTED" in own("config", "view")
