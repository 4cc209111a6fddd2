"""kill -9 at every step of a write, and at any time under load: what was acknowledged is there, nothing is half."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from tests.server import disk_values
from tests.server.disk_values import KEYS, STEPS, TIMES, put
from tests.server.server_clients import MAPS, Client, config_map
from trainyard.server import DiskLog
from trainyard.server.storage.database import NAME

PROGRAM = ("-m", disk_values.__name__)
WRITERS = 24


def test_a_process_killed_at_any_step_of_a_write_loses_no_acknowledged_write(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, *PROGRAM, "kill", str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert completed.returncode == 0, completed.stderr
    for step in STEPS:
        for times in TIMES:
            place = tmp_path / f"{step}-{times}"
            acks = [tuple(map(int, line.split())) for line in (place / "acks").read_text().splitlines()]
            last = max((end for _, end in acks), default=0)
            log = DiskLog(place / "log")
            assert log.revision >= last, (step, times)
            assert [revision.revision for revision in log.after(log.floor)] == list(
                range(log.floor + 1, log.revision + 1)
            )
            for entry in log.after(log.floor):
                assert entry.record is None or entry.record.body.startswith(b"%d " % entry.revision)
            for start, end in acks:  # a request is there whole
                assert end <= log.floor or [
                    event.revision for event in log.after(max(log.floor, start - 1)) if event.revision <= end
                ] == list(range(max(log.floor + 1, start), end + 1))
            if log.revision > last:  # what nobody heard of came whole, too: two requests in one commit
                assert step in ("committed", "answer"), (step, times, log.revision, last)
            before = log.revision
            assert put(log, KEYS[0]) == before + 1
            log.close()


@dataclass
class Known:
    """The state of the writers."""

    acknowledged: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By object: the value that was acknowledged, and its version."""
    unacknowledged: dict[str, str] = field(default_factory=dict)
    """The value under way when the server was killed."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """A write of this life has been."""


@pytest.mark.slow
async def test_a_server_killed_under_load_keeps_every_acknowledged_write(tmp_path: Path) -> None:
    """Several runs on one folder. Each writer owns one object and remembers its acknowledged value."""
    chance = random.Random(6)
    known = Known()
    highest = 0
    for life in range(5):
        server = await asyncio.create_subprocess_exec(
            sys.executable, *PROGRAM, "serve", str(tmp_path), stdout=subprocess.PIPE
        )
        assert server.stdout
        url = (await server.stdout.readline()).decode().strip()
        heard: dict[str, int] = {}
        try:
            async with aiohttp.ClientSession() as session:
                client = Client(session, url)
                await look(client, known)
                known.answered.clear()
                work = [write(client, f"writer-{at}", f"{life}", known) for at in range(WRITERS)]
                await asyncio.gather(kill(server, known.answered, chance), listen(client, heard), *work)
        except BaseException:
            server.kill()
            raise
        await server.wait()
        log = DiskLog(tmp_path)
        assert max(heard.values(), default=0) <= log.revision, "a watch heard of what is not there"
        assert log.revision >= max(version for _, version in known.acknowledged.values()) > highest
        highest = log.revision
        log.close()
    whole = sqlite3.connect(tmp_path / NAME).execute("PRAGMA integrity_check").fetchone()
    assert whole == ("ok",) and highest > WRITERS * 5


async def kill(server: asyncio.subprocess.Process, answered: asyncio.Event, chance: random.Random) -> None:
    """A moment after the first answer of this life."""
    async with asyncio.timeout(60):
        await answered.wait()
    await asyncio.sleep(chance.uniform(0, 0.4))
    server.kill()


async def write(client: Client, name: str, life: str, known: Known) -> None:
    turn, acknowledged, unacknowledged = 0, known.acknowledged, known.unacknowledged
    while True:
        turn += 1
        value = f"{life}-{turn}"
        unacknowledged[name] = value
        try:
            if name in acknowledged:
                _, got = await client.ask("PATCH", f"{MAPS}/{name}", {"data": {"value": value}})
            else:
                _, got = await client.ask("POST", MAPS, config_map(name, data={"value": value}))
        except (aiohttp.ClientError, OSError, ValueError):
            return
        assert "resourceVersion" in got["metadata"], got
        version = int(got["metadata"]["resourceVersion"])
        assert name not in acknowledged or version > acknowledged[name][1], got
        acknowledged[name] = value, version
        del unacknowledged[name]
        known.answered.set()


async def listen(client: Client, heard: dict[str, int]) -> None:
    try:
        async with client.watch(MAPS) as lines:
            async for line in lines:
                heard[line["object"]["metadata"]["name"]] = int(line["object"]["metadata"]["resourceVersion"])
    except (aiohttp.ClientError, OSError, ValueError):
        return


async def look(client: Client, known: Known) -> None:
    """What is there is what was answered, or the one thing that was under way."""
    acknowledged, unacknowledged = known.acknowledged, known.unacknowledged
    _, listed = await client.ask("GET", MAPS)
    by_name = {item["metadata"]["name"]: item for item in listed["items"]}
    assert acknowledged.keys() <= by_name.keys() <= acknowledged.keys() | unacknowledged.keys() | {"kube-root-ca.crt"}
    for name, obj in by_name.items():
        value = obj["data"]["value"]
        assert value in (acknowledged.get(name, ("", 0))[0], unacknowledged.get(name)), (
            name,
            value,
            acknowledged.get(name),
            unacknowledged.get(name),
        )
        acknowledged[name] = value, int(obj["metadata"]["resourceVersion"])
    unacknowledged.clear()
