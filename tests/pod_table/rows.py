"""The pods of the table, and what is done to each while it runs.

Rules:
- A row is about one thing that a user's job can see. Programs are `sh -c` lines that both sides can run.
- A program that others should see running runs for `HOLD` seconds: a kubelet looks at its containers once a second.
- What happens in one container before something in another is written by the programs into `/shared/log`, a file of the
  pod: statuses have times in whole seconds.
- `differs`: what our node deliberately shows otherwise. Path in the trace -> the topic of the row in
  docs/compatibility.md that says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tests.pod_table.trace import container_status
from trainyard.objects import Json

IMAGE = "IMAGE"  # replaced by an image that has `sh`
HOLD = 1.3
Condition = Callable[[Json], object]
"""Of a pod's status. A pod that is gone has the status `GONE`."""
GONE: Json = {"gone": True}


def gone(status: Json) -> object:
    return status.get("gone")


def ended(status: Json) -> object:
    return status.get("phase") in ("Succeeded", "Failed")


def running(name: str = "main", restarts: int = 0) -> Condition:
    """A container runs, and has been restarted that many times."""

    def holds(status: Json) -> object:
        entry = container_status(status, name)
        return "running" in (entry.get("state") or {}) and entry["restartCount"] >= restarts

    return holds


def terminated(name: str = "main") -> Condition:
    return lambda status: "terminated" in (container_status(status, name).get("state") or {})


def waiting(reason: str, name: str = "main") -> Condition:
    return lambda status: (container_status(status, name).get("state") or {}).get("waiting", {}).get("reason") == reason


def ready(name: str = "main") -> Condition:
    return lambda status: container_status(status, name).get("ready")


class Delete(msgspec.Struct, frozen=True):
    """Delete the pod; None leaves the grace period to the pod."""

    when: Condition
    grace: int | None = None


class Printed(msgspec.Struct, frozen=True):
    """Wait until the container has printed `text`: it has set its traps."""

    when: Condition
    text: str = "up"
    container: str = "main"


class Exec(msgspec.Struct, frozen=True):
    """Execute a command in a container."""

    when: Condition
    command: tuple[str, ...]
    container: str = "main"


class Create(msgspec.Struct, frozen=True):
    """Create an object beside the pod."""

    when: Condition
    object: Json


Step = Delete | Printed | Exec | Create


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and what is done to it. `end`: when the trace ends. `objects`: ConfigMaps and Secrets that it needs.
    `with_fields`: compare also which fields its status has; `with_previous_logs`: what `logs -p` gives.
    `as_root`: our node shows it where root runs it. `ignored`: paths of the trace that depend on when a node looks."""

    name: str
    spec: Json
    metadata: Json = {}
    objects: tuple[Json, ...] = ()
    steps: tuple[Step, ...] = ()
    end: Condition = ended
    with_fields: bool = False
    with_previous_logs: bool = False
    as_root: bool = False
    differs: Mapping[str, str] = {}
    ignored: tuple[str, ...] = ()


# Topics of docs/compatibility.md.
FILES_LOST = {"events.pod": "files that are deleted with a pod"}
FIRST_PROCESS = "the first process of a container"
NOT_FOUND = "a command that is not found"
NON_ROOT = "`runAsNonRoot` without `runAsUser`"


def sh(script: str, name: str = "main", **fields: Any) -> Json:
    """A container that runs these lines."""
    return {"name": name, "image": IMAGE, "command": ["sh", "-c", script], **fields}


def shared(script: str, name: str = "main", **fields: Any) -> Json:
    """A container that sees the files of the pod in /shared, below other volumes of its own."""
    mounts = [{"name": "shared", "mountPath": "/shared"}, *fields.pop("volumeMounts", ())]
    return sh(script, name, volumeMounts=mounts, **fields)


def pod(*containers: Json, policy: str = "Never", **fields: Any) -> Json:
    """A spec without a service account's token; with the volume of `shared` containers, if there are any."""
    mounts = [
        mount["name"]
        for container in (*containers, *fields.get("initContainers", ()))
        for mount in container.get("volumeMounts", ())
    ]
    volumes = [*([{"name": "shared", "emptyDir": {}}] if "shared" in mounts else ()), *fields.pop("volumes", ())]
    more = {"volumes": volumes} if volumes else {}
    spec = {"restartPolicy": policy, "automountServiceAccountToken": False, "enableServiceLinks": False}
    return {**spec, **more, **fields, "containers": list(containers)}


def note(text: str) -> str:
    """A line of a script: one more line of the pod's log of what happened."""
    return f"echo {text} >>/shared/log; "


FAIL_ONCE = f"if [ -e /shared/ran ]; then echo second; sleep {HOLD}; exit 0; fi; touch /shared/ran; echo first; "
SLEEP = f"sleep {HOLD}; "
WAIT_FOR_B = f"while [ ! -e /shared/b ]; do sleep 0.1; done; {SLEEP}"
# A program that waits in the background heeds its traps at once.
SERVE = "echo up; while :; do sleep 0.1; done"
_TRAPPED = f"trap 'exit 7' TERM; {SERVE}"


def config_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def secret(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def side(script: str, name: str, **fields: Any) -> Json:
    """A native sidecar."""
    return shared(script, name, restartPolicy="Always", **fields)


def rule(action: str, *codes: int, operator: str = "In") -> list[Json]:
    return [{"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}]


def exec_probe(script: str, **fields: Any) -> Json:
    return {"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "failureThreshold": 1, **fields}


def hook(script: str) -> Json:
    return {"exec": {"command": ["sh", "-c", script]}}


EXITS = (
    Row(
        name="exit-0",
        spec=pod(sh(f"echo out; sleep 0.3; echo err >&2; {SLEEP}")),
        with_fields=True,
        differs={"fields.*": "fields of a pod's status"},
    ),
    Row(name="exit-3", spec=pod(sh(f"{SLEEP} exit 3"))),
    Row(name="exit-at-once", spec=pod(sh("exit 4")), ignored=("phases", "ready", "containers.main.ready")),
    Row(name="on-failure-exit-0", spec=pod(sh(f"{SLEEP}"), policy="OnFailure")),
    Row(name="on-failure-twice", spec=pod(shared(f"{FAIL_ONCE} {SLEEP} exit 3"), policy="OnFailure")),
    Row(name="always-exit-0", spec=pod(shared(f"{SLEEP}"), policy="Always"), end=running(restarts=1)),
    Row(
        name="previous-log",
        spec=pod(shared(f"{FAIL_ONCE} {SLEEP} exit 3"), policy="OnFailure"),
        end=running(restarts=1),
        with_previous_logs=True,
        differs={"logs.main.previous": "logs of earlier container runs"},
    ),
    Row(name="crash-loop", spec=pod(sh("sleep 0.5; exit 1"), policy="Always"), end=running(restarts=2)),
    Row(
        name="one-of-two-fails",
        spec=pod(shared(f"{WAIT_FOR_B} exit 3", "a"), shared(f"touch /shared/b; sleep {3 * HOLD}", "b")),
    ),
    Row(
        name="one-of-two-restarts",
        spec=pod(
            shared(f"{WAIT_FOR_B} {FAIL_ONCE} exit 3", "a"),
            shared(f"touch /shared/b; sleep {4 * HOLD}", "b"),
            policy="OnFailure",
        ),
    ),
    Row(
        name="process-ids",
        spec=pod(sh(f"echo $$$$ $PPID; {SLEEP}")),
        differs={"logs.main": FIRST_PROCESS},
    ),
    Row(
        name="kill-itself",
        spec=pod(sh(f"{SLEEP} kill -9 $$$$; sleep 1; exit 5")),
        differs={"containers.main.states": FIRST_PROCESS},
    ),
    Row(
        name="term-itself",
        spec=pod(sh(f"{SLEEP} kill -TERM $$$$; sleep 1; exit 5")),
        differs={"containers.main.states": FIRST_PROCESS},
    ),
    Row(name="abort-child", spec=pod(sh(f"{SLEEP} sh -c 'kill -ABRT $$$$'; exit $?"))),
)

INIT = (
    Row(
        name="init-order",
        spec=pod(
            shared(f"{note('main')} {SLEEP} cat /shared/log"),
            initContainers=[shared(f"{SLEEP} {note('a')}", "a"), shared(f"{SLEEP} {note('b')}", "b")],
        ),
        differs=FILES_LOST,
    ),
    Row(name="init-fails", spec=pod(sh("true"), initContainers=[sh(f"{SLEEP} exit 4", "a"), sh("true", "b")])),
    Row(
        name="init-fails-once",
        spec=pod(sh(SLEEP), initContainers=[shared(f"{FAIL_ONCE} {SLEEP} exit 4", "a")], policy="OnFailure"),
    ),
    Row(
        name="init-fails-once-always",
        spec=pod(sh("sleep 100"), initContainers=[shared(f"{FAIL_ONCE} {SLEEP} exit 4", "a")], policy="Always"),
        end=running(),
    ),
)

_RAN = "[ -e /shared/ran ]"
_WHOLE_LOG = "cat /shared/log >/dev/termination-log"


_WAIT_FOR_MAIN = "while [ ! -e /shared/main ]; do sleep 0.1; done; sleep 2;"


def _noting_sidecar(name: str) -> Json:
    return side(f"trap '{note(f'end {name}')} {_WHOLE_LOG}; exit 0' TERM; {note(f'start {name}')} {SERVE}", name)


SIDECARS = (
    Row(
        name="sidecar-order",
        spec=pod(
            shared(f"{note('start main')} {SLEEP} {note('end main')}"),
            initContainers=[_noting_sidecar("a"), shared(f"{SLEEP} {note('init')}", "i"), _noting_sidecar("b")],
        ),
        differs=FILES_LOST,
    ),
    Row(
        name="sidecar-main-fails",
        spec=pod(shared(f"{SLEEP} exit 3"), initContainers=[side(f"trap 'exit 7' TERM; {SERVE}", "a")]),
    ),
    Row(
        name="sidecar-ignores-term",
        spec=pod(shared(SLEEP), initContainers=[side(f"trap '' TERM; {SERVE}", "a")], terminationGracePeriodSeconds=2),
    ),
    Row(
        name="sidecar-restarts",
        spec=pod(
            shared(f"touch /shared/main; while [ ! -e /shared/again ]; do sleep 0.1; done; sleep {2 * HOLD}"),
            initContainers=[
                side(
                    f"[ -e /shared/ran ] || {{ {_WAIT_FOR_MAIN} touch /shared/ran; exit 3; }}; touch /shared/again; "
                    f"trap 'exit 0' TERM; {SERVE}",
                    "a",
                )
            ],
        ),
    ),
    Row(
        name="sidecar-succeeds",
        spec=pod(
            shared(f"touch /shared/main; while [ ! -e /shared/again ]; do sleep 0.1; done; sleep {2 * HOLD}"),
            initContainers=[
                side(
                    f"[ -e /shared/ran ] || {{ {_WAIT_FOR_MAIN} touch /shared/ran; exit 0; }}; touch /shared/again; "
                    f"trap 'exit 0' TERM; {SERVE}",
                    "a",
                )
            ],
        ),
    ),
    Row(
        name="sidecar-deleted",
        spec=pod(
            shared(f"trap '{note('end main')} sleep 1; exit 0' TERM; {SERVE}"),
            initContainers=[_noting_sidecar("a"), _noting_sidecar("b")],
            terminationGracePeriodSeconds=20,
        ),
        differs=FILES_LOST,
        steps=(Printed(running()), Delete(running())),
        end=gone,
    ),
)

_ONCE_42 = f"[ -e /shared/ran ] && exec sleep {HOLD}; touch /shared/ran; {SLEEP} exit 42"
RULES = (
    Row(name="rule-restart", spec=pod(shared(_ONCE_42, restartPolicy="Never", restartPolicyRules=rule("Restart", 42)))),
    Row(
        name="rule-does-not-match",
        spec=pod(shared(f"{SLEEP} exit 43", restartPolicy="Never", restartPolicyRules=rule("Restart", 42))),
    ),
    Row(
        name="rule-not-in",
        spec=pod(shared(_ONCE_42, restartPolicy="Never", restartPolicyRules=rule("Restart", 0, operator="NotIn"))),
    ),
    Row(
        name="rule-restart-one-of-two",
        spec=pod(
            shared(f"{WAIT_FOR_B} {_ONCE_42}", "a", restartPolicy="Never", restartPolicyRules=rule("Restart", 42)),
            shared(f"touch /shared/b; sleep {5 * HOLD}", "b"),
        ),
    ),
    Row(
        name="rule-restart-all",
        spec=pod(
            shared(
                f"sleep 3; {_ONCE_42}", "a", restartPolicy="Never", restartPolicyRules=rule("RestartAllContainers", 42)
            ),
            shared(
                f"trap '{note('end b')} exit 7' TERM; {note('start b')} echo up; n=0; "
                "while [ $n -lt 60 ]; do n=$((n+1)); sleep 0.1; done; cat /shared/log",
                "b",
            ),
            initContainers=[shared(f"{SLEEP} {note('init')}", "i")],
        ),
        differs=FILES_LOST,
        # A kubelet may show an init container that is removed as ready. The true exit code of b, which is stopped, is
        # seen for a moment, or not at all.
        ignored=("containers.i.ready", "containers.b.states"),
    ),
    Row(
        name="container-policy-on-failure",
        spec=pod(shared(f"{FAIL_ONCE} {SLEEP} exit 3", restartPolicy="OnFailure"), policy="Never"),
    ),
    Row(
        name="container-policy-never",
        spec=pod(sh(f"{SLEEP} exit 3", "a", restartPolicy="Never"), sh("sleep 100", "b"), policy="Always"),
        end=terminated("a"),
    ),
)

_FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}
MESSAGES = (
    Row(name="message", spec=pod(sh(f"{SLEEP} echo why >/dev/termination-log; exit 3"))),
    Row(name="message-of-success", spec=pod(sh(f"{SLEEP} printf fine >/dev/termination-log"))),
    Row(
        name="message-elsewhere",
        spec=pod(sh(f"{SLEEP} echo why >/tmp/message-of-the-pod", terminationMessagePath="/tmp/message-of-the-pod")),
    ),
    Row(
        name="message-too-long",
        spec=pod(sh(f"{SLEEP} for i in $(seq 1000 1999); do printf '%s ' $i; done >/dev/termination-log; exit 3")),
    ),
    Row(name="message-from-log", spec=pod(sh(f"echo a; sleep 0.3; echo b >&2; {SLEEP} exit 3", **_FALLBACK))),
    Row(name="message-not-from-log", spec=pod(sh(f"echo a; {SLEEP}", **_FALLBACK))),
    Row(
        name="message-of-both",
        spec=pod(sh(f"echo a; {SLEEP} echo file >/dev/termination-log; exit 3", **_FALLBACK)),
    ),
    Row(name="message-from-long-log", spec=pod(sh(f"seq 1000 1199; {SLEEP} exit 3", **_FALLBACK))),
    Row(
        name="message-from-wide-log",
        spec=pod(sh(f"for i in $(seq 1000 1999); do printf '%s ' $i; done; echo; {SLEEP} exit 3", **_FALLBACK)),
    ),
    Row(name="message-of-bytes", spec=pod(sh(f"{SLEEP} printf 'a\\377\\000b' >/dev/termination-log"))),
    Row(
        name="message-of-many",
        spec=pod(
            sh(f"{SLEEP} head -c 4096 /dev/zero | tr '\\0' a >/dev/termination-log", "a"),
            sh(f"{SLEEP} head -c 4096 /dev/zero | tr '\\0' b >/dev/termination-log", "b"),
            sh(f"{SLEEP} head -c 4096 /dev/zero | tr '\\0' c >/dev/termination-log", "c"),
            sh(f"{SLEEP} head -c 4096 /dev/zero | tr '\\0' d >/dev/termination-log", "d"),
        ),
        ignored=("ready", "containers.*.ready"),
    ),
)


def _between_runs(status: Json) -> object:
    """The container has failed twice, and is not started again at once."""
    entry = container_status(status, "main")
    return entry.get("restartCount") == 1 and "running" not in entry["state"]


STOPS = (
    Row(
        name="term-heeded",
        spec=pod(sh(f"trap 'echo bye >/dev/termination-log; exit 7' TERM; {SERVE}"), terminationGracePeriodSeconds=20),
        steps=(Printed(running()), Delete(running())),
        end=gone,
    ),
    Row(
        name="term-ignored",
        spec=pod(sh(f"trap '' TERM; {SERVE}"), terminationGracePeriodSeconds=2),
        steps=(Printed(running()), Delete(running())),
        end=gone,
    ),
    Row(
        name="term-not-handled",
        spec=pod(sh("echo up; exec sleep 100"), terminationGracePeriodSeconds=2),
        steps=(Printed(running()), Delete(running())),
        end=gone,
        differs={"containers.main.states": FIRST_PROCESS},
    ),
    Row(
        name="grace-of-the-request",
        spec=pod(sh(f"trap '' TERM; {SERVE}")),
        steps=(Printed(running()), Delete(running(), grace=1)),
        end=gone,
    ),
    Row(
        name="grace-of-0",
        spec=pod(sh(f"trap 'exit 7' TERM; {SERVE}")),
        steps=(Printed(running()), Delete(running(), grace=0)),
        end=gone,
    ),
    Row(
        name="deleted-after-its-end",
        spec=pod(sh(f"{SLEEP} exit 3")),
        steps=(Delete(ended),),
        end=gone,
    ),
    Row(
        name="deleted-while-it-waits",
        spec=pod(sh("true", envFrom=[{"configMapRef": {"name": "none"}}])),
        steps=(Delete(waiting("CreateContainerConfigError")),),
        end=gone,
        differs=dict.fromkeys(
            ("containers.main.states", "conditions.Ready", "conditions.ContainersReady"),
            "a container that has not run when its pod is deleted",
        ),
    ),
    Row(
        name="deleted-in-back-off",
        spec=pod(shared(f"{FAIL_ONCE.replace('exit 0', 'exit 3')} {SLEEP} exit 3"), policy="Always"),
        steps=(Delete(_between_runs),),
        end=gone,
        differs={"containers.main.states": "a container that waits for its next start"},
    ),
    Row(
        name="deleted-while-it-initializes",
        spec=pod(sh("true"), initContainers=[sh(f"trap 'exit 7' TERM; {SERVE}", "a")]),
        steps=(Printed(running("a"), container="a"), Delete(running("a"))),
        end=gone,
    ),
    Row(
        name="stopped-together",
        spec=pod(
            shared(f"trap '{note('a')} exit 1' TERM; {SERVE}", "a"),
            shared(f"trap 'sleep 1; {note('b')} exit 0' TERM; {SERVE}", "b"),
            shared(f"trap 'sleep 2; {note('c')} {_WHOLE_LOG}; exit 3' TERM; {SERVE}", "c"),
            sh(f"trap '' TERM; {SERVE}", "d"),
            terminationGracePeriodSeconds=4,
        ),
        steps=(*(Printed(running(name), container=name) for name in "abcd"), Delete(running("a"))),
        end=gone,
        differs=FILES_LOST,
    ),
    Row(
        name="deadline-of-several",
        spec=pod(
            sh(f"trap 'exit 0' TERM; {SERVE}", "a"),
            sh(f"trap 'sleep 1; exit 3' TERM; {SERVE}", "b"),
            sh("true", "c"),
            activeDeadlineSeconds=15,
        ),
        ignored=("ready", "containers.*.ready"),  # c has ended, or not
    ),
    Row(
        name="deadline",
        spec=pod(sh(f"trap 'exit 0' TERM; {SERVE}"), activeDeadlineSeconds=5, terminationGracePeriodSeconds=10),
    ),
    Row(
        name="deadline-always",
        spec=pod(sh(f"trap 'exit 0' TERM; {SERVE}"), activeDeadlineSeconds=5, policy="Always"),
    ),
    Row(
        name="deadline-of-init",
        spec=pod(sh("true"), initContainers=[sh(f"trap 'exit 0' TERM; {SERVE}", "a")], activeDeadlineSeconds=5),
    ),
)

_HTTP = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(STATUSES.pop(0) if len(STATUSES) > 1 else STATUSES[0])
        self.end_headers()
    def log_message(self, *_):
        print(self.path, self.headers["User-Agent"].split("/")[0], flush=True)
http.server.HTTPServer(("", 8080), Handler).serve_forever()
"""
# The statuses are those of grpc.health.v1: 1 is SERVING, 2 NOT_SERVING.
_GRPC = """
import socket
def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
def field(name, value):
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value
def serve(connection):
    file = connection.makefile("rb")
    file.read(24)
    connection.sendall(frame(4, 0, 0))
    while len(head := file.read(9)) == 9:
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        payload = file.read(int.from_bytes(head[:3], "big"))
        if kind in (4, 6) and not flags & 1:
            connection.sendall(frame(kind, 1, 0, payload if kind == 6 else b""))
        if kind == 0 and flags & 1:
            status = STATUSES.pop(0) if len(STATUSES) > 1 else STATUSES[0]
            fields = field(b":status", b"200") + field(b"content-type", b"application/grpc")
            answer = frame(1, 4, stream, fields) + frame(0, 0, stream, bytes([0, 0, 0, 0, 2, 8, status]))
            connection.sendall(answer + frame(1, 5, stream, field(b"grpc-status", b"0")))
listener = socket.create_server(("", 8080))
while True:
    connection, _ = listener.accept()
    try:
        serve(connection)
    except OSError:
        pass
"""


_ENDS_BY_TERM = "import os, signal\nsignal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"


def serving(program: str, *statuses: int) -> Json:
    """A sidecar with a server on port 8080 that answers with these statuses, and then always with the last. What comes
    after it in the pod starts when it listens."""
    command = ["python3", "-c", f"{_ENDS_BY_TERM}STATUSES = {list(statuses)}\n{program}"]
    listens = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
    return {"name": "server", "image": IMAGE, "command": command, "restartPolicy": "Always", "startupProbe": listens}


HOOKS = (
    Row(
        name="post-start",
        spec=pod(
            shared(
                f"while [ ! -e /shared/hook ]; do sleep 0.1; done; cat /shared/hook; {SLEEP}",
                lifecycle={"postStart": hook("echo hook >/shared/hook")},
            ),
            activeDeadlineSeconds=15,
        ),
        differs=FILES_LOST,
    ),
    Row(
        name="post-start-fails",
        spec=pod(
            sh(f"trap 'exit 7' TERM; {SERVE}", lifecycle={"postStart": hook("sleep 1; exit 3")}),
            terminationGracePeriodSeconds=5,
            activeDeadlineSeconds=15,
        ),
    ),
    Row(
        name="pre-stop",
        spec=pod(
            shared(
                f"trap '{note('term')} {_WHOLE_LOG}; exit 0' TERM; {SERVE}",
                lifecycle={"preStop": hook(f"{note('hook')} sleep 1; {note('hook-ends')}")},
            ),
            terminationGracePeriodSeconds=20,
        ),
        steps=(Printed(running()), Delete(running())),
        end=gone,
        differs=FILES_LOST,
    ),
    Row(
        name="pre-stop-too-long",
        spec=pod(
            sh(
                f"trap 'echo term >/dev/termination-log; exit 7' TERM; {SERVE}",
                lifecycle={"preStop": hook("sleep 100")},
            ),
            terminationGracePeriodSeconds=2,
        ),
        steps=(Printed(running()), Delete(running())),
        end=gone,
    ),
    Row(
        name="pre-stop-sleep",
        spec=pod(
            shared(
                f"trap '{note('term main')} {_WHOLE_LOG}; exit 0' TERM; {SERVE}",
                lifecycle={"preStop": {"sleep": {"seconds": 2}}},
            ),
            shared(f"trap '{note('term b')} exit 0' TERM; {SERVE}", "b"),
            terminationGracePeriodSeconds=20,
        ),
        steps=(Printed(running()), Printed(running("b"), container="b"), Delete(running())),
        end=gone,
        differs=FILES_LOST,
    ),
    Row(
        name="pre-stop-of-a-sidecar",
        spec=pod(
            shared(f"trap '{note('term main')} sleep 1; exit 0' TERM; {SERVE}"),
            initContainers=[
                side(
                    f"trap '{note('term side')} {_WHOLE_LOG}; exit 0' TERM; {SERVE}",
                    "a",
                    lifecycle={"preStop": hook(f"sleep 0.5; {note('hook of a side')}")},
                )
            ],
            terminationGracePeriodSeconds=20,
        ),
        steps=(Printed(running()), Delete(running())),
        end=gone,
        differs=FILES_LOST,
    ),
    Row(
        name="pre-stop-of-a-failed-probe",
        spec=pod(
            shared(
                f"[ -e /shared/log ] && exec sleep 100; trap '{note('term')} {_WHOLE_LOG}; exit 7' TERM; {SERVE}",
                livenessProbe=exec_probe("[ -e /shared/log ]", initialDelaySeconds=2),
                lifecycle={"preStop": hook(note("hook"))},
            ),
            policy="OnFailure",
        ),
        end=lambda status: running(restarts=1)(status) or ended(status),
    ),
    Row(
        name="post-start-http",
        spec=pod(
            sh("sleep 6", lifecycle={"postStart": {"httpGet": {"port": 8080, "path": "/hook"}}}),
            initContainers=[serving(_HTTP, 500)],
        ),
        ignored=("containers.server.ready", "events.server"),
    ),
    Row(
        name="post-start-http-refused",
        spec=pod(
            sh(
                f"trap 'exit 7' TERM; {SERVE}",
                lifecycle={"postStart": {"httpGet": {"port": 8080, "path": "/hook"}}},
            ),
            terminationGracePeriodSeconds=5,
        ),
        ignored=("logs.main",),  # it may be ended before it prints
    ),
    Row(
        name="post-start-delays-the-next",
        spec=pod(
            shared(f"sleep {3 * HOLD}", "a", lifecycle={"postStart": hook(f"sleep 1; {note('hook')}")}),
            shared(f"{note('b')} {SLEEP} cat /shared/log", "b"),
        ),
        differs=FILES_LOST,
        ignored=("ready", "containers.a.ready"),  # a has ended before a busy kubelet looks
    ),
)

STARTS = (
    Row(
        name="command-not-found",
        spec=pod({"name": "main", "image": IMAGE, "command": ["no-such-program"]}),
        differs={"containers.main.states": NOT_FOUND, "events.main": NOT_FOUND},
    ),
    Row(
        name="command-not-found-restarts",
        spec=pod({"name": "main", "image": IMAGE, "command": ["no-such-program"]}, policy="OnFailure"),
        end=lambda status: container_status(status, "main").get("restartCount", 0) >= 1,
        differs={"containers.main.states": NOT_FOUND, "events.main": NOT_FOUND},
    ),
    Row(
        name="command-not-executable",
        spec=pod({"name": "main", "image": IMAGE, "command": ["/etc/passwd"]}),
        differs={"containers.main.states": NOT_FOUND, "events.main": NOT_FOUND},
    ),
    Row(
        name="command-is-a-folder",
        spec=pod({"name": "main", "image": IMAGE, "command": ["/etc"]}),
        differs={"containers.main.states": NOT_FOUND, "events.main": NOT_FOUND},
    ),
    Row(
        name="working-directory-missing",
        spec=pod(sh(f"pwd; {SLEEP}", workingDir="/no-such-folder-of-a-pod/below")),
    ),
    Row(
        name="init-command-not-found",
        spec=pod(sh("true"), initContainers=[{**sh("", "a"), "command": ["no-such"]}]),
        differs={"containers.a.states": NOT_FOUND, "events.a": NOT_FOUND},
    ),
)

_VOLUME_MISSING = "a volume of an object that does not exist"
_ENV = "echo $A-$B-$C"
ENVIRONMENT = (
    Row(
        name="env",
        spec=pod(
            sh(
                f"{_ENV}; {SLEEP}",
                env=[
                    {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "a"}}},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "env", "key": "b"}}},
                    {"name": "C", "value": "$(A)$$(A)$(NONE)"},
                ],
            )
        ),
        objects=(config_map("env", a="one"), secret("env", b="two")),
    ),
    Row(
        name="env-from",
        spec=pod(
            sh(
                f"env | grep ^X_ | sort; {SLEEP}",
                envFrom=[
                    {"prefix": "X_", "configMapRef": {"name": "env-from"}},
                    {"prefix": "X_", "secretRef": {"name": "env-from"}},
                    {"configMapRef": {"name": "none", "optional": True}},
                ],
            )
        ),
        objects=(config_map("env-from", A="map", B="map"), secret("env-from", B="secret")),
    ),
    Row(
        name="env-of-fields",
        metadata={"labels": {"app": "web"}, "annotations": {"note": "text"}},
        spec=pod(
            sh(
                f"env | grep ^X_ | sort; {SLEEP}",
                resources={"limits": {"memory": "100Mi"}, "requests": {"cpu": "10m"}},
                env=[
                    *(
                        {"name": f"X_{number}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
                        for number, path in enumerate(
                            (
                                "metadata.name",
                                "metadata.namespace",
                                "metadata.labels['app']",
                                "metadata.annotations['note']",
                                "metadata.annotations['none']",
                                "spec.nodeName",
                                "spec.serviceAccountName",
                                "status.podIP",
                                "status.podIPs",
                            )
                        )
                    ),
                    {"name": "X_A", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
                    {"name": "X_B", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
                ],
            )
        ),
    ),
    *(
        Row(
            name=f"env-without-{name}",
            spec=pod(sh("true", env=[{"name": "A", "valueFrom": source}])),
            objects=(config_map("env-without", other="x"),) if name == "key" else (),
            end=waiting("CreateContainerConfigError"),
        )
        for name, source in {
            "config-map": {"configMapKeyRef": {"name": "none", "key": "a"}},
            "key": {"configMapKeyRef": {"name": "env-without", "key": "a"}},
            "secret": {"secretKeyRef": {"name": "none", "key": "a"}},
        }.items()
    ),
    Row(
        name="env-from-without-config-map",
        spec=pod(sh("true", envFrom=[{"configMapRef": {"name": "none"}}])),
        end=waiting("CreateContainerConfigError"),
    ),
    Row(
        name="env-comes-later",
        spec=pod(sh(f"echo $A; {SLEEP}", envFrom=[{"configMapRef": {"name": "later"}}])),
        steps=(Create(waiting("CreateContainerConfigError"), config_map("later", A="came")),),
    ),
)


def _mounting(script: str, path: str = "/of-the-pod", **mount: Any) -> Json:
    return sh(f"{script}; {SLEEP}", volumeMounts=[{"name": "v", "mountPath": path, **mount}])


def _volume(**source: Any) -> list[Json]:
    return [{"name": "v", **source}]


_FILES = "find -L . -path './..*' -prune -o -type f -print | sort | xargs"
_LIST = f"cd /of-the-pod; {_FILES} stat -L -c '%n %a'; {_FILES} cat"
VOLUMES = (
    Row(
        name="volume-empty-dir",
        spec=pod(_mounting("stat -c '%a %u %g' /of-the-pod; touch /of-the-pod/a"), volumes=_volume(emptyDir={})),
    ),
    Row(
        name="volume-memory",
        spec=pod(_mounting("stat -f -c %T /of-the-pod"), volumes=_volume(emptyDir={"medium": "Memory"})),
    ),
    Row(
        name="volume-config-map",
        spec=pod(_mounting(_LIST), volumes=_volume(configMap={"name": "volume-config-map"})),
        objects=(config_map("volume-config-map", a="one\n", b="two\n"),),
    ),
    Row(
        name="volume-not-mounted",
        spec=pod(sh(f"echo ran; {SLEEP}"), volumes=_volume(configMap={"name": "absent"})),
    ),
    Row(
        name="volume-config-map-items",
        spec=pod(
            _mounting(_LIST),
            volumes=_volume(
                configMap={
                    "name": "volume-items",
                    "defaultMode": 0o640,
                    "items": [{"key": "a", "path": "in/a"}, {"key": "b", "path": "b", "mode": 0o500}],
                }
            ),
        ),
        objects=(config_map("volume-items", a="one\n", b="two\n", c="three\n"),),
    ),
    Row(
        name="volume-secret",
        spec=pod(_mounting(_LIST), volumes=_volume(secret={"secretName": "volume-secret", "defaultMode": 0o400})),
        objects=(secret("volume-secret", a="one\n"),),
    ),
    Row(
        name="volume-projected",
        metadata={"labels": {"app": "web"}},
        spec=pod(
            _mounting(_LIST),
            volumes=_volume(
                projected={
                    "sources": [
                        {"configMap": {"name": "volume-projected", "items": [{"key": "a", "path": "map"}]}},
                        {"secret": {"name": "volume-projected", "optional": True}},
                        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                    ]
                }
            ),
        ),
        objects=(config_map("volume-projected", a="one\n"),),
    ),
    Row(
        name="volume-downward",
        metadata={"labels": {"app": "web", "tier": "1"}, "annotations": {"note": 'a "b"'}},
        spec=pod(
            _mounting(_LIST),
            volumes=_volume(
                downwardAPI={
                    "items": [
                        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}, "mode": 0o600},
                        {"path": "note", "fieldRef": {"fieldPath": "metadata.annotations['note']"}},
                    ]
                }
            ),
        ),
    ),
    Row(
        name="volume-sub-path",
        spec=pod(_mounting("cat /of-the-pod", subPath="a"), volumes=_volume(configMap={"name": "volume-sub-path"})),
        objects=(config_map("volume-sub-path", a="one\n"),),
    ),
    Row(
        name="volume-sub-path-made",
        spec=pod(_mounting("touch /of-the-pod/a; ls -A /of-the-pod", subPath="b/c"), volumes=_volume(emptyDir={})),
    ),
    Row(
        name="volume-read-only",
        spec=pod(
            _mounting("touch /of-the-pod/a 2>/dev/null || echo refused", readOnly=True), volumes=_volume(emptyDir={})
        ),
    ),
    Row(
        name="volume-config-map-is-read-only",
        spec=pod(
            _mounting("touch /of-the-pod/b 2>/dev/null || echo refused"),
            volumes=_volume(configMap={"name": "volume-read-only"}),
        ),
        objects=(config_map("volume-read-only", a="one\n"),),
    ),
    Row(
        name="volume-comes-later",
        spec=pod(_mounting("cat /of-the-pod/a"), volumes=_volume(configMap={"name": "volume-later"})),
        steps=(Create(waiting("ContainerCreating"), config_map("volume-later", a="came\n")),),
        differs={"containers.main.states": _VOLUME_MISSING},
        ignored=("events.pod",),  # a kubelet may have mounted the volume before it writes of it
    ),
)

USER, GROUP, OTHER_GROUP = 54321, 65432, 76543  # that no machine has
_IDS = "id -u; id -g; id -G | tr ' ' '\\n' | sort -n | xargs"
SECURITY = (
    Row(
        name="run-as-user",
        spec=pod(
            sh(
                f"id -u; id -g; echo $HOME; sleep 0.3; echo err >/dev/stderr; {SLEEP} "
                "echo why >/dev/termination-log; exit 3",
                securityContext={"runAsUser": USER},
            )
        ),
        as_root=True,
    ),
    Row(
        name="run-as-group",
        spec=pod(
            sh(f"{_IDS}; {SLEEP}", "a", securityContext={"runAsUser": USER + 1}),
            sh(f"{_IDS}; {SLEEP}", "b"),
            securityContext={"runAsUser": USER, "runAsGroup": GROUP, "supplementalGroups": [OTHER_GROUP]},
        ),
        as_root=True,
        ignored=("ready", "containers.a.ready"),  # a has ended before a busy kubelet looks
    ),
    Row(
        name="run-as-user-exec",
        spec=pod(sh(_TRAPPED, securityContext={"runAsUser": USER, "runAsGroup": GROUP})),
        steps=(Printed(running()), Exec(running(), ("id", "-u")), Exec(running(), ("id", "-g")), Delete(running())),
        end=gone,
        as_root=True,
    ),
    Row(
        name="run-as-non-root",
        spec=pod(sh("true", securityContext={"runAsNonRoot": True})),
        end=lambda status: waiting("CreateContainerConfigError")(status) or ended(status),
        differs={"*": NON_ROOT},
    ),
    Row(
        name="run-as-non-root-user",
        spec=pod(sh(f"id -u; {SLEEP}", securityContext={"runAsNonRoot": True, "runAsUser": USER})),
        as_root=True,
    ),
    Row(
        name="run-as-non-root-as-root",
        spec=pod(sh("true", securityContext={"runAsNonRoot": True}), securityContext={"runAsUser": 0}),
        end=waiting("CreateContainerConfigError"),
    ),
    Row(
        name="fs-group",
        spec=pod(
            sh(
                "stat -c '%a %u %g' /of-the-pod; echo x >/of-the-pod/a; stat -c '%u %g' /of-the-pod/a; "
                "cd /map; find -L . -path './..*' -prune -o -type f -print | xargs stat -L -c '%n %a %u %g'; "
                f"{_IDS}; {SLEEP}",
                securityContext={"runAsUser": USER},
                volumeMounts=[{"name": "v", "mountPath": "/of-the-pod"}, {"name": "map", "mountPath": "/map"}],
            ),
            volumes=[*_volume(emptyDir={}), {"name": "map", "configMap": {"name": "fs-group", "defaultMode": 0o400}}],
            securityContext={"fsGroup": GROUP},
        ),
        objects=(config_map("fs-group", a="one"),),
        as_root=True,
        differs=FILES_LOST,
    ),
    Row(
        name="fs-group-memory",
        spec=pod(
            sh(
                f"stat -c '%a %u %g' /of-the-pod; echo x >/of-the-pod/a; stat -c '%u %g' /of-the-pod/a; {SLEEP}",
                securityContext={"runAsUser": USER},
                volumeMounts=[{"name": "v", "mountPath": "/of-the-pod"}],
            ),
            volumes=_volume(emptyDir={"medium": "Memory"}),
            securityContext={"fsGroup": GROUP},
        ),
        as_root=True,
    ),
)

HOSTS = (
    Row(name="host-name", spec=pod(sh(f"hostname; echo $HOSTNAME; {SLEEP}"))),
    Row(name="host-name-set", spec=pod(sh(f"hostname; {SLEEP}"), hostname="worker-0", subdomain="job")),
    Row(name="host-name-override", spec=pod(sh(f"hostname; {SLEEP}"), hostnameOverride="worker-0.example")),
    Row(
        name="host-aliases",
        spec=pod(
            sh(f"grep alias.example /etc/hosts | tr '\\t' ' '; {SLEEP}"),
            hostAliases=[{"ip": "10.1.2.3", "hostnames": ["alias.example"]}],
        ),
    ),
)

_OFTEN = {"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 10}
# A kubelet may look at a server that is a sidecar for the first time when it has started; each probe may be in its log.
_OF_SERVER = ("containers.server.ready", "events.server", "logs.server")
PROBES = (
    Row(
        name="probe-readiness",
        spec=pod(
            shared(f"sleep 2; touch /shared/ready; {_TRAPPED}", readinessProbe=exec_probe("[ -e /shared/ready ]")),
            activeDeadlineSeconds=15,
        ),
        end=ready(),
    ),
    Row(
        name="probe-liveness",
        spec=pod(
            sh(_TRAPPED, livenessProbe=exec_probe("exit 3", initialDelaySeconds=2)),
            policy="OnFailure",
            activeDeadlineSeconds=15,
        ),
        end=lambda status: running(restarts=1)(status) or ended(status),
    ),
    Row(
        name="probe-liveness-never",
        spec=pod(sh(_TRAPPED, livenessProbe=exec_probe("exit 3", initialDelaySeconds=2)), activeDeadlineSeconds=15),
    ),
    Row(
        name="probe-startup",
        spec=pod(
            shared(
                f"sleep 2; touch /shared/started; {_TRAPPED}",
                startupProbe=exec_probe("[ -e /shared/started ]", failureThreshold=10),
            ),
            activeDeadlineSeconds=15,
        ),
        end=ready(),
        ignored=("containers.main.ready",),  # a kubelet shows a moment later that it is ready, too
    ),
    Row(
        name="probe-startup-of-a-sidecar",
        spec=pod(
            shared(f"{note('main')} {SLEEP} cat /shared/log"),
            initContainers=[
                side(
                    f"sleep 2; {note('started')} touch /shared/started; {_TRAPPED}",
                    "a",
                    startupProbe=exec_probe("[ -e /shared/started ]", failureThreshold=10),
                )
            ],
            activeDeadlineSeconds=25,
        ),
        differs=FILES_LOST,
        # A kubelet may look at the sidecar for the first time when it has started.
        ignored=("containers.a.ready", "events.a"),
    ),
    *(
        Row(
            name=f"probe-{name}",
            spec=pod(sh(_TRAPPED, readinessProbe=probe), initContainers=[server]),
            end=ready(),
            ignored=_OF_SERVER,
        )
        for name, server, probe in (
            ("http", serving(_HTTP, 503, 503, 503, 200), {"httpGet": {"port": 8080, "path": "/ready"}, **_OFTEN}),
            ("grpc", serving(_GRPC, 2, 2, 2, 1), {"grpc": {"port": 8080}, **_OFTEN}),
        )
    ),
    *(
        Row(
            name=f"probe-{name}-liveness",
            spec=pod(sh(_TRAPPED, livenessProbe=probe), initContainers=[server], policy="OnFailure"),
            end=running(restarts=1),
            ignored=_OF_SERVER,
        )
        for name, server, probe in (
            ("http", serving(_HTTP, 500, 200), {"httpGet": {"port": 8080}, **_OFTEN, "periodSeconds": 5}),
            ("grpc", serving(_GRPC, 2, 1), {"grpc": {"port": 8080}, **_OFTEN, "periodSeconds": 5}),
        )
    ),
    Row(
        name="probe-tcp-refused",
        spec=pod(sh(_TRAPPED, livenessProbe={"tcpSocket": {"port": 8080}, "initialDelaySeconds": 2, **_OFTEN})),
    ),
    Row(
        name="probe-grpc-refused",
        spec=pod(sh(_TRAPPED, livenessProbe={"grpc": {"port": 8080}, "initialDelaySeconds": 2, **_OFTEN})),
    ),
)

EXECS = (
    Row(
        name="exec",
        spec=pod(sh(_TRAPPED, env=[{"name": "A", "value": "one"}])),
        steps=(
            Printed(running()),
            Exec(running(), ("sh", "-c", "echo $A; pwd; echo err >&2; exit 3")),
            Exec(running(), ("no-such-program",)),
            Delete(running(), grace=3),
        ),
        end=gone,
        differs={"logs.exec.2": "`exec` of a command that is not found"},
    ),
)

ROWS: tuple[Row, ...] = (
    *HOOKS,  # those that take longest come first
    *PROBES,
    *EXITS,
    *INIT,
    *SIDECARS,
    *RULES,
    *MESSAGES,
    *STOPS,
    *STARTS,
    *ENVIRONMENT,
    *VOLUMES,
    *SECURITY,
    *HOSTS,
    *EXECS,
)
