"""The log on disk: it can be opened again, and reports why it cannot be opened."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.disk_values import KEYS, put
from tests.server.server_clients import CRDS, MAPS, THINGS, Client, config_map, crd, custom_object, following
from trainyard.objects import NamespacedName
from trainyard.server import DiskError, DiskLog, NotWritten, RevisionLog, Server
from trainyard.server.model.store import LogEntry, Record
from trainyard.server.storage import disk
from trainyard.server.storage.database import FORMAT, NAME
from trainyard.server.storage.log import Compacted

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete", "compact", "reopen"]), st.sampled_from(KEYS)), max_size=30
)


def contents(log: RevisionLog) -> object:
    """All that can be asked of a log."""
    entries = [
        (event.revision, event.store, event.key, event.record, event.previous, event.last_state)
        for event in log.after(log.floor)
    ]
    lists = [log.list("maps", revision) for revision in range(max(1, log.floor), log.revision + 1)]
    return log.revision, log.floor, entries, lists, log.list("maps")


def delete(log: RevisionLog, key: NamespacedName) -> LogEntry:
    record = log.get("maps", key)
    assert record is not None
    return log.append("maps", key, None, record.revision, b"last of %d" % record.revision)


@contextmanager
def opened(folder: Path) -> Iterator[DiskLog]:
    log = DiskLog(folder)
    try:
        yield log
    finally:
        log.close()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_an_opened_log_is_the_one_that_was_closed(steps: list[tuple[str, NamespacedName]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, model = DiskLog(Path(folder)), RevisionLog()
        for step, key in steps:
            if step == "put":
                put(log, key)
                put(model, key)  # type: ignore[arg-type]  # what it needs both have
            elif step == "delete" and log.get("maps", key):
                delete(log, key)
                delete(model, key)
            elif step == "compact":
                log.compact(log.revision - 2)
                model.compact(model.revision - 2)
            elif step == "reopen":
                log.close()
                log = DiskLog(Path(folder))
            assert contents(log) == contents(model)
        log.close()
        with opened(Path(folder)) as again:
            assert contents(again) == contents(model)


def test_rows_that_no_longer_count_leave_the_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for _ in range(200):
            put(log, KEYS[0])
        put(log, KEYS[1])
        delete(log, KEYS[1])
        log.compact(log.revision)
    rows = sqlite3.connect(tmp_path / NAME).execute("SELECT revision FROM entries").fetchall()
    assert rows == [(200,)]
    with opened(tmp_path) as log:
        assert (log.revision, log.floor) == (202, 202)
        assert put(log, KEYS[1]) == 203


def test_the_past_is_bounded_on_disk_too(tmp_path: Path) -> None:
    log = DiskLog(tmp_path, keep=10)
    for _ in range(100):
        put(log, KEYS[0])
    log.close()
    (count,) = sqlite3.connect(tmp_path / NAME).execute("SELECT count(*) FROM entries").fetchone()
    assert count <= 21
    with opened(tmp_path) as log:
        assert log.revision == 100 and log.floor >= 80
        with pytest.raises(Compacted):
            log.after(log.floor - 1)


def test_files_are_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with opened(tmp_path / "state") as log:
            put(log, KEYS[0])
            assert {path.name for path in (tmp_path / "state").iterdir()} >= {NAME, f"{NAME}-wal"}
            assert {path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()} == {0o600}
            assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


async def test_writes_of_one_turn_are_one_commit(tmp_path: Path) -> None:
    steps: list[str] = []
    log = DiskLog(tmp_path, step=steps.append)
    heard: list[int] = []
    log.follow(lambda entry: heard.append(entry.revision), committed=True)

    async def write(key: NamespacedName) -> None:
        revision = put(log, key)
        assert log.committed < revision and revision not in heard
        await log.wait_committed(revision)
        assert log.committed >= revision and revision in heard

    await asyncio.gather(*(write(key) for key in KEYS))
    assert steps == ["begin", "insert", "insert", "insert", "commit", "committed"]
    log.close()
    log.close()


async def test_a_commit_waits_for_concurrent_writers_and_not_for_a_single_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    log = DiskLog(tmp_path, step=steps.append)

    async def write(key: NamespacedName, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await log.wait_committed(put(log, key))

    async def commits(*turns: int) -> list[int]:
        """How many rows each of them has, when one writes at once, another a turn of the loop later."""
        steps.clear()
        await asyncio.gather(*(write(key, late) for key, late in zip(KEYS, turns, strict=False)))
        return [part.count("insert") for part in " ".join(steps).split("committed")[:-1]]

    assert await commits(0, 1, 2) == [1, 1, 1]
    assert await commits(0, 0, 1) == [3]
    assert await commits(0, 0, 9) == [2, 1]
    monkeypatch.setattr(disk, "MAX_BATCH", 2)
    assert await commits(0, 0, 1) == [2, 1]
    log.close()


# --- what cannot be opened


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    at = content.rindex(b"x" * 50)  # within a body
    content[at] ^= 1
    path.write_bytes(content)


def torn_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096 : 4096 * 2] = b"\xff" * 4096
    path.write_bytes(content)


def executing(statement: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        file = sqlite3.connect(path)
        file.execute(statement)
        file.commit()
        file.close()

    return change


def another_program(path: Path) -> None:
    path.unlink()
    executing("CREATE TABLE notes (text)")(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_text("apiVersion: v1\n" * 99), "is broken, or not ours"),
        (lambda path: os.truncate(path, 4096), "is broken"),
        (torn_page, "is broken"),
        (flipped, "is not what was written"),
        (another_program, "another program's"),
        (executing("PRAGMA application_id = 1"), "another program's"),
        (executing(f"PRAGMA user_version = {FORMAT + 1}"), "newer trainyard"),
        (executing("DELETE FROM entries WHERE revision = 7"), "entry 7 is missing"),
        (executing("UPDATE entries SET name = 'z' WHERE revision = 7"), "entry 7 is not what was written"),
        (executing("DELETE FROM past"), "is broken"),
        (executing("DROP TABLE entries"), "no such table"),
    ],
)
def test_a_file_that_is_no_complete_log_is_named_and_kept(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    with opened(tmp_path) as log:
        for _ in range(60):
            put(log, KEYS[0], 300)
    path = tmp_path / NAME
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(DiskError, match=message) as refused:
        DiskLog(tmp_path)
    assert str(path) in str(refused.value) and refused.value.unusable
    assert path.read_bytes()[100:] == before[100:], "it was changed"


def test_two_processes_do_not_write_one_log(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(DiskError, match="another process uses it") as refused:
        DiskLog(tmp_path)
    assert not refused.value.unusable
    with opened(tmp_path):
        pass


def test_a_read_only_log_is_reported() -> None:
    """As an ordinary user: to root every file can be written."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)  # noqa: S103  (the other user must come in)
        folder = Path(place) / "state"
        with opened(folder) as log:
            put(log, KEYS[0])
        program = (
            "import os, sys, pathlib\n"
            "from trainyard.server import DiskLog\n"
            "if os.getuid() == 0: os.setuid(65534)\n"
            "try: DiskLog(pathlib.Path(sys.argv[1]))\n"
            "except Exception as error: print(type(error).__name__, error)\n"
        )

        def message() -> str:
            completed = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True)
            return completed.stdout + completed.stderr

        for path in (folder, *folder.iterdir()):
            path.chmod(0o500 if path == folder else 0o444)
            if os.getuid() == 0:
                os.chown(path, 65534, 65534)
        assert message().startswith("DiskError") and "permission denied; " in message()
        (folder / "log.lock").chmod(0o666)
        assert message().startswith(f"DiskError {folder / NAME}: permission denied; give this user the right")
        folder.chmod(0o700)


def test_a_disk_that_is_full_at_the_start_is_named(tmp_path: Path) -> None:
    with limited(0), pytest.raises(DiskError, match="it is full, has a limit") as refused:
        DiskLog(tmp_path)
    assert str(tmp_path / NAME) in str(refused.value) and not refused.value.unusable
    with opened(tmp_path) as log:
        assert put(log, KEYS[0]) == 1


# --- a disk that is full in the middle


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file of this process grows beyond that size."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_write_without_disk_space_is_rolled_back(tmp_path: Path) -> None:
    log = DiskLog(tmp_path)
    followed: dict[NamespacedName, bytes] = {}

    def keep_book(entry: LogEntry) -> None:
        if entry.record is None:
            followed.pop(entry.key)
        else:
            followed[entry.key] = entry.record.body

    log.follow(keep_book)
    put(log, KEYS[0])
    await log.wait_committed(1)
    before, book = contents(log), dict(followed)
    with limited((tmp_path / f"{NAME}-wal").stat().st_size + 100):
        put(log, KEYS[0])
        put(log, KEYS[1], 10_000)
        delete(log, KEYS[0])
        with pytest.raises(NotWritten, match=r"nothing of this write is stored.*the server goes on"):
            await log.wait_committed(log.revision)
        assert contents(log) == before and followed == book and log.committed == 1
    assert put(log, KEYS[2]) == 2
    await log.wait_committed(2)
    after = contents(log)
    log.close()
    with opened(tmp_path) as again:
        assert contents(again) == after


@pytest.fixture
async def disk_server(tmp_path: Path) -> AsyncIterator[Server]:
    log = DiskLog(tmp_path)
    server = Server(log=log)
    await server.start()
    yield server
    await server.stop()
    log.close()


async def test_the_server_refuses_writes_on_a_full_disk_and_accepts_them_afterwards(disk_server: Server) -> None:
    log = disk_server.log
    assert isinstance(log, DiskLog)
    async with aiohttp.ClientSession() as session:
        client = Client(session, disk_server.url)
        await client.make(MAPS, config_map("before"))
        before = log.revision
        async with client.watch(MAPS, resourceVersion=str(before)) as lines:
            log._file.execute("PRAGMA max_page_count = 1")  # it cannot be less than there is
            large = config_map("large", data={"a": "x" * 200_000})
            kept, read = await asyncio.gather(client.ask("POST", MAPS, large), client.ask("GET", f"{MAPS}/large"))
            assert (kept[0], kept[1]["reason"]) == (500, "InternalError"), kept
            assert "no space left; free some" in kept[1]["message"]
            assert read[0] == 404 and log.revision == before
            log._file.execute("PRAGMA max_page_count = 1000000")
            await client.make(MAPS, config_map("after"))
            assert await following(lines, 1) == [("ADDED", "after")]
        assert (await client.ask("GET", f"{MAPS}/large"))[0] == 404


async def test_a_definition_that_finds_no_room_does_not_serve(disk_server: Server) -> None:
    log = disk_server.log
    assert isinstance(log, DiskLog)
    async with aiohttp.ClientSession() as session:
        client = Client(session, disk_server.url)
        with limited((log.path.with_name(f"{NAME}-wal")).stat().st_size):
            assert (await client.ask("POST", CRDS, crd()))[0] == 500
            async with session.get(disk_server.url + THINGS) as got:
                assert got.status == 404
        await client.make(CRDS, crd())
        await client.make(THINGS, custom_object("one"))


async def test_a_server_on_an_existing_log_continues_at_its_revision(tmp_path: Path) -> None:
    revisions: list[int] = []
    for life in range(3):
        log = DiskLog(tmp_path)
        server = Server(log=log)
        await server.start()
        async with aiohttp.ClientSession() as session:
            client = Client(session, server.url)
            if life == 0:
                await client.make(CRDS, crd())
                await client.make(THINGS, custom_object("one"))
                first = log.revision
            if life == 1:
                assert log.revision == revisions[-1], "furnishing an old log writes"
                async with client.watch(THINGS, resourceVersion=str(first - 1)) as lines:
                    assert await following(lines, 1) == [("ADDED", "one")]
                log.compact(log.revision)
            if life == 2:
                async with client.watch(THINGS, resourceVersion=str(first - 1)) as lines:
                    assert (await anext(lines))["object"]["code"] == 410
            code, stored = await client.ask("GET", f"{THINGS}/one")
            assert code == 200 and stored["spec"] == {"replicas": 1, "mode": "fast"}
            await client.make(MAPS, config_map(f"life-{life}"))
        revisions.append(log.revision)
        await server.stop()
        log.close()
    assert revisions == sorted(set(revisions))


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    odd = Record(1, "naïve ☃ \x00".encode(), {"ключ": "ü"}, {"a.b": ""})
    with opened(tmp_path) as log:
        log.append("things.example.org", NamespacedName("", "x"), odd, 0)
    with opened(tmp_path) as log:
        assert log.get("things.example.org", NamespacedName("", "x")) == odd
