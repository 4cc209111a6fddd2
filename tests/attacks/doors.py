"""One attack for each way into, or out of, a cluster of this machine: random, from a seed. Each raises AssertionError.

    python -m tests.attacks.doors [--seed N] [--seconds 600]        # make attack

The seed is printed, and gives the same bytes again. `tests/attacks/test_doors.py` is the short form. What holds is
asserted by what comes back, and by the time in which the API answers nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import copy
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import yaml

from tests.attacks.attacked_cluster import (
    PORTS,
    TFJOB,
    AttackedCluster,
    attack_port,
    attacked_cluster,
    stranger_command,
)
from tests.cli.test_history_export import FAILED, MARKUP, failed_pod, recorded, with_losses
from tests.page import tfevents_writer
from tests.views.why_values import NOW, tfjob
from trainyard.app.history.recorded_job import events_of, facts_of, job_object
from trainyard.app.history.records import HistoryRecord, read_record, read_records
from trainyard.app.kubeconfig import SECTIONS, KubeconfigError
from trainyard.app.kubeconfig_merge import merge, remove
from trainyard.cli.export.history_export import exported_run
from trainyard.cli.export.page import export_page
from trainyard.cli.output.record_lines import record_lines
from trainyard.objects import Json, uid_of
from trainyard.objects.resources import NAMESPACE, SERVICE
from trainyard.page.access import ROUTES
from trainyard.page.event_series import EventSeries
from trainyard.page.job_list import recorded_row
from trainyard.page.log_ranges import recorded_files
from trainyard.page.series import SeriesReader

SECRET = "the key of the user: 7c1f"
READ_SECONDS = 2.0  # of CPU, for a file of some kB
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, -1e308, 1 << 62, 10**400, "", "x" * 10_000, "\x1b]0;title\x07", MARKUP, [], {}, [[]],
    {"": {}}, "2026-02-30T25:61:61Z", "9999999999999999-01-01T00:00:00Z", "../../../etc/passwd", [None] * 100,
)  # fmt: skip
ODD_TEXTS = (
    b"[" * 3000,
    b"\xff\xfe",
    b"\x00",
    b"- &a [*a]\n",
    b"!!python/object:os.system x",
    b"9" * 5000,
    b"\x1b[31m",
)


# By another user of the machine: what listens on loopback.


async def attack_listeners(cluster: AttackedCluster, seed: int, rounds: int) -> None:
    """Random requests and silent connections, to the page, the node and the API, without a right."""
    page, api = (urlsplit(str(cluster.facts[name])) for name in ("page", "api"))
    pod_paths = [f"/{what}/default/a/b" for what in ("containerLogs", "exec", "attach", "sockets")]
    doors: dict[str, Json] = {
        "page": {"port": page.port, "paths": [route.path for route in ROUTES]},
        "node": {"port": await cluster.node_port(), "paths": [*pod_paths, "/pods", "/metrics", "/run/default/a/b"]},
        "api": {"port": api.port, "tls": True, "paths": ["/api/v1/pods", "/apis", "/api/v1/namespaces/a/pods/b/exec"]},
    }
    for name, door in doors.items():
        async with cluster.measured():
            parameters = {"host": f"127.0.0.1:{door['port']}", "seed": seed, "rounds": rounds, "words": cluster.secrets}
            answer = await attack_port(door | parameters)
        assert not answer["leaks"], (name, answer["leaks"])
        assert set(answer["codes"]) <= ALLOWED_CODES[name], (name, answer["codes"])
        assert sum(answer["codes"].values()) > rounds // 2


REFUSALS = {"none", "400", "401", "403", "404", "405", "408", "411", "413", "415", "417", "421", "426", "429", "431"}
ALLOWED_CODES = {
    "page": REFUSALS | {"200", "100", "503"},  # its page and its assets are public
    "node": REFUSALS | {"100"},
    "api": REFUSALS | {"100", "503"},
}


async def attack_ports_of_the_network(cluster: AttackedCluster) -> None:
    """Another user holds every port of the network *shared*, and its name: Services get none, and cost nobody."""
    command, user = stranger_command()
    holder = await asyncio.create_subprocess_exec(
        *command,
        HOLD_PORTS,
        str(PORTS.start),
        str(PORTS.stop),
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **user,
    )
    assert holder.stdin and holder.stdout
    await holder.stdout.readline()
    names = [f"svc-{number}" for number in range(6)]
    try:
        async with cluster.measured():
            for name in names:
                spec = {"selector": {"app": name}, "ports": [{"port": 80, "protocol": "TCP"}]}
                await cluster.api.create(SERVICE, "default", {"metadata": {"name": name}, "spec": spec})
            for number in range(20):  # each change of a Service looks at all that have no port
                await cluster.api.patch(SERVICE, "default", names[0], {"metadata": {"labels": {"a": str(number)}}})
            for name in names:
                await cluster.api.delete(SERVICE, "default", name)
    finally:
        holder.stdin.close()
        await holder.wait()


HOLD_PORTS = """
import contextlib, resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
with contextlib.suppress(OSError):  # no descriptor is left
    for port in range(int(sys.argv[1]), int(sys.argv[2])):
        for family, kind, address in (
            (socket.AF_UNIX, socket.SOCK_DGRAM, "\\0trainyard-port-%d" % port),
            (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)),
        ):
            held.append(socket.socket(family, kind))
            with contextlib.suppress(OSError):
                held[-1].bind(address)
print(len(held), flush=True)
sys.stdin.read()
"""


# By a page with a session, and by a job: what is read later.


async def attack_live_page(cluster: AttackedCluster, seed: int, rounds: int) -> None:
    """Random frames of WebSockets. The next page is served."""
    port = urlsplit(str(cluster.facts["page"])).port
    lines = (
        f"GET /ui/v1/live HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket",
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==",
        f"Authorization: Bearer {cluster.browser.session}\r\n\r\n",
    )
    words = [word for word in cluster.secrets if word != cluster.browser.session]
    parameters = {"port": port, "host": "", "seed": seed, "rounds": rounds, "paths": [], "words": words}
    async with cluster.measured():
        answer = await attack_port(parameters | {"head": "\r\n".join(lines)})
        assert not answer["leaks"], answer["leaks"]
        assert set(answer["codes"]) <= {"101", "none", "503"} and answer["codes"].get("101"), answer["codes"]
        async with cluster.browser.live("jobs") as page:
            await page.frame("jobs")


async def attack_page_as_a_job(cluster: AttackedCluster, seed: int, seconds: float) -> None:
    """A job puts something else in the place of its log and its record, again and again, while its page is open; then
    its record is exported."""
    history = Path(str(cluster.facts["history"]))
    secret = history.parent / "id_key"
    secret.write_text(SECRET)
    command = [sys.executable, "-I", "-c", HOSTILE_JOB, str(history), str(secret), str(seed), str(seconds)]
    container = {"name": "tensorflow", "image": "example.invalid/x", "command": command}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}]}
    name = f"hostile-{seed}"
    body = {"apiVersion": TFJOB.api_version, "kind": TFJOB.kind, "metadata": {"name": name}, "spec": spec}
    job = await cluster.api.create(TFJOB, "default", body)
    path = f"jobs/{uid_of(job)}"
    generator = random.Random(seed)

    async def has_ended() -> bool:
        status = (await cluster.api.get(TFJOB, "default", name)).get("status") or {}
        return any(item["type"] in ("Succeeded", "Failed") for item in status.get("conditions") or ())

    async with cluster.measured():
        is_last = False
        while True:
            files = await read_pages(cluster, path)
            for file in files:
                offset = generator.choice((0, -1, -(1 << 20), 1 << 62))
                await read_page(cluster, f"{path}/logs/{quote(file)}?offset={offset}&limit={1 << 20}")
            if is_last:
                break
            is_last = await has_ended()
    for record in read_records(history):
        assert SECRET not in export_page(exported_run(record, NOW))


async def read_page(cluster: AttackedCluster, path: str) -> bytes:
    """What comes back, which has nothing of the secret."""
    status, body = await cluster.page(path)
    assert status in (200, 400, 404, 503), (path, status, body[:300])
    assert SECRET.encode() not in body, path
    return body


async def read_pages(cluster: AttackedCluster, path: str) -> list[str]:
    """Read everything about a job. Returns the names of its logs."""
    for part in ("", "/yaml", "/series", "/series?points=" + "9" * 5000):
        await read_page(cluster, path + part)
    await read_page(cluster, f"compare?jobs={path.partition('/')[2]}")
    with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
        return [str(log["file"]) for log in msgspec.json.decode(await read_page(cluster, f"{path}/logs"))["files"]]
    return []


HOSTILE_JOB = """
import contextlib, glob, os, random, shutil, sys, time
history, secret, seed, seconds = sys.argv[1:]
generator, end = random.Random(int(seed)), time.monotonic() + float(seconds)
texts = (b"x" * 200_000, b"\\n" * 60_000, b"\\x1b]0;t\\x07\\r\\x1b[2J", b"step 1 loss nan\\n", b'{"step":1e999}\\n')
while time.monotonic() < end:
    sys.stdout.buffer.write(generator.choice((*texts, generator.randbytes(5000))))
    sys.stdout.buffer.flush()
    own = [path for path in glob.glob(history + "/**", recursive=True) if not os.path.isdir(path)]
    for path in generator.sample(sorted(own), min(2, len(own))):
        with contextlib.suppress(OSError):
            os.unlink(path)
            way = generator.randrange(6)
            if way == 0:
                os.mkfifo(path)
            elif way < 3:
                os.symlink(secret if way == 1 else "/dev/zero", path)
            elif way == 3:
                os.mkdir(path)
            else:
                with open(path, "wb") as file:
                    file.write(generator.randbytes(3000) if way == 4 else b"[" * 100_000)
    time.sleep(0.05)
"""


# By a record, an event file and a kubeconfig of somebody else: in this process.


def damaged(generator: random.Random, text: bytes) -> bytes:
    """The text with other bytes in it; of JSON and YAML mostly with another value in the place of one."""
    if generator.random() < 0.7:
        with contextlib.suppress(yaml.YAMLError, UnicodeDecodeError):
            content = yaml.safe_load(text)
            places = list(places_of(content))
            for container, key in generator.sample(places, min(len(places), generator.choice((1, 1, 2, 8)))):
                container[key] = copy.deepcopy(generator.choice(ODD_VALUES))
            return json.dumps(content).encode()
    for _ in range(generator.choice((1, 3))):
        at = generator.randrange(len(text) + 1)
        piece = generator.choice((*ODD_TEXTS, generator.randbytes(8)))
        text = text[:at] + piece + text[at + generator.choice((0, 8, len(text))) :]
    return text


def places_of(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each (container, key or index) within a value."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from places_of(item)


def attack_history(seed: int, rounds: int, folder: Path) -> None:
    """Damaged records: every reader of the history comes to an end, and the exported page has no markup of theirs."""
    generator = random.Random(seed)
    record = recorded(folder / "history", tfjob(FAILED), failed_pod())
    with_losses(record)
    pristine = folder / "pristine"
    record.folder.rename(pristine)
    for number in range(rounds):
        shutil.rmtree(record.folder, ignore_errors=True)
        shutil.copytree(pristine, record.folder)
        files = [path for path in sorted(record.folder.rglob("*")) if path.is_file()]
        for path in generator.sample(files, generator.choice((1, 1, 2))):
            path.write_bytes(damaged(generator, path.read_bytes()))
        with naming(f"record {number} of seed {seed}"):
            read_everywhere(record.folder)


def read_everywhere(folder: Path) -> None:
    """By `history`, `why`, the export and the page."""
    record = read_record(folder)
    assert record is None or isinstance(record, HistoryRecord)
    if record is None:
        return
    read_records(folder.parent)
    job_object(record), events_of(record), facts_of(record), recorded_row(record), recorded_files(record)
    SeriesReader().last_values(record.logs, {})
    assert all("\n" not in line for line in record_lines(record, NOW, 100))
    page = export_page(exported_run(record, NOW))
    assert "<script>" not in page and "<img" not in page


def attack_event_files(seed: int, rounds: int, folder: Path) -> None:
    """Damaged event files: what is whole is read, in a bounded time."""
    generator = random.Random(seed)
    write = tfevents_writer
    records = [write.event(step, NOW + step, write.simple("loss", 0.5)) for step in range(50)]
    records += [write.event(60, NOW, write.tensor("t", 1, write.field(4, b"1234" * 200), 1 << 62, -1, 200))]
    for number in range(rounds):
        content = write.VERSION + b"".join(map(write.frame, records))
        content = damaged_bytes(generator, content)
        path = folder / str(number) / "events.out.tfevents.1.host"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        begin = time.thread_time()
        with naming(f"event file {number} of seed {seed}"):
            series = EventSeries().read([path.parent], NOW, None)
            assert all(isinstance(point.value, float) for points in series.values() for point in points)
        assert time.thread_time() - begin < READ_SECONDS, f"event file {number} of seed {seed}"


def damaged_bytes(generator: random.Random, content: bytes) -> bytes:
    """Numbers of lengths and tags changed, pieces left out and doubled."""
    damaged_content = bytearray(content)
    for _ in range(generator.choice((1, 2, 20))):
        at = generator.randrange(len(damaged_content))
        size = generator.choice((1, 4, 8, 300))
        odd = generator.choice((b"\xff" * size, bytes(size), generator.randbytes(size), b"", b"\x7f" + b"\xff" * 7))
        damaged_content[at : at + generator.choice((size, 0))] = odd
    return bytes(damaged_content)


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: theirs
clusters: [{name: theirs, cluster: {server: "https://192.0.2.1"}}, {name: other, cluster: {server: "https://192.0.2.2"}}]
users: [{name: theirs, user: {token: abc}}]
contexts: [{name: theirs, context: {cluster: theirs, user: theirs, namespace: n}}]
preferences: {}
"""


def node_values(text: bytes) -> set[str]:
    """The scalars of a YAML document, also of one with tags that nothing loads."""
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    scalars, nodes = set[str](), [document] if document else []
    while nodes:
        node = nodes.pop()
        if isinstance(node, yaml.ScalarNode):
            scalars.add(node.value)
        elif node is not None:
            is_mapping = isinstance(node, yaml.MappingNode)
            nodes += [child for pair in node.value for child in pair] if is_mapping else node.value
            node.value = []  # a node may be within itself
    return scalars


def merge_refusal(path: Path, source: Path) -> str:
    """Merge; the sentence with which it is refused, "" if it is not."""
    try:
        merge(path, source, "trainyard")
    except KubeconfigError as error:
        return str(error)
    return ""


def attack_kubeconfig(seed: int, rounds: int, folder: Path) -> None:
    """`--merge-kubeconfig` into a damaged file: our entries and theirs, or a sentence, and the file as it was."""
    generator = random.Random(seed)
    source, path = folder / "source", folder / "config"
    source.write_text(KUBECONFIG.replace("theirs", "ours"))
    for number in range(rounds):
        text = damaged(generator, KUBECONFIG.encode())
        path.write_bytes(text)
        with naming(f"kubeconfig {number} of seed {seed}"):
            if refusal := merge_refusal(path, source):
                assert path.read_bytes() == text and str(path) in refusal
                continue
            before, merged = (node_values(content) for content in (text, path.read_bytes()))
            lost, added = before - merged, merged - before
            assert lost <= {"", "null", "~"} and "trainyard" in added and "ours" not in added, (lost, added)
            assert remove(path, "trainyard")
            left = node_values(path.read_bytes()) - before
            assert left <= {"", "current-context", *SECTIONS}, left
        assert [entry.name for entry in folder.iterdir() if entry.name not in ("source", "config")] == []


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Any exception of what is attacked is a fault, and names how to see it again."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


FILE_ATTACKS: tuple[Callable[[int, int, Path], None], ...] = (attack_history, attack_event_files, attack_kubeconfig)


def attack_files(seed: int, rounds: int) -> None:
    """All attacks by files."""
    for attack in FILE_ATTACKS:
        with tempfile.TemporaryDirectory() as folder:
            attack(seed, rounds, Path(folder))


async def attack_cluster(seed: int, rounds: int, seconds: float) -> None:
    """All attacks on one cluster, which serves its owner at the end."""
    async with attacked_cluster() as cluster:
        await attack_listeners(cluster, seed, rounds)
        await attack_live_page(cluster, seed, rounds)
        await attack_page_as_a_job(cluster, seed, seconds)
        await attack_ports_of_the_network(cluster)
        assert await cluster.api.get(NAMESPACE, "", "default")
        print(f"seed {seed}: at most {cluster.longest_standstill * 1000:.0f} ms of CPU between two answers")


def main() -> None:
    """Attack with one seed after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    end, seed = time.monotonic() + options.seconds, options.seed
    while True:
        print(f"seed {seed}", flush=True)
        attack_files(seed, 300)
        asyncio.run(attack_cluster(seed, 300, 20.0))
        seed += 1
        if time.monotonic() > end:
            return


if __name__ == "__main__":
    main()
