"""A state that is not what was left: each file and folder, broken in each way, is refused in one sentence and stays.

The cases are generated. A start of a daemon costs seconds, a look at a state none: `trainyard up` itself is asked once.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.app.daemon_values import at_home
from trainyard.app.background.state import CA, CHAIN, KEY, ClusterState
from trainyard.app.background.state_check import FACTS, encode_facts
from trainyard.objects import NamespacedName
from trainyard.server import DiskError, DiskLog
from trainyard.server.model.store import Record

LOG = "log/log.db"
KEYS = f"keys/{FACTS}"
FILES = (KEYS, f"keys/{CHAIN}", f"keys/{KEY}", f"keys/{CA}", LOG)
FOLDERS = (".", "keys", "log", "node")
STORE = "configmaps."


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state in which a cluster has been: entries in the log, certificates, a port, a claim."""
    folder = tmp_path_factory.mktemp("whole") / "state"
    state = ClusterState(folder, print)
    for number in range(20):
        record = Record(number + 1, b'{"a": "%d"}' % number, {}, {})
        state.log.append(STORE, NamespacedName("default", f"m{number}"), record, 0)
    state.certified()
    state.save_port(4444)
    (folder / "node" / "claims").mkdir()
    state.close()
    return folder


@pytest.fixture
def state(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "state")
    return tmp_path / "state"


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of everything but what SQLite and the lock keep beside the log."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in sorted(folder.rglob("*"))
        if path.name not in ("log.lock", "log.db-wal", "log.db-shm")
    }


def objects(folder: Path) -> list[bytes]:
    log = DiskLog(folder / "log")
    try:
        return [record.body for _, record in log.list(STORE)]
    finally:
        log.close()


def refusal(folder: Path) -> str:
    """The one sentence with which it is refused; nothing has changed."""
    before = contents(folder)
    with pytest.raises(DiskError) as caught:
        ClusterState(folder, print)
    text = str(caught.value)
    assert "\n" not in text and str(folder) in text and ";" in text
    assert contents(folder) == before
    return text


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


WAYS: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": empty,
    "cut": cut,
    "a link": link,
    "a FIFO": fifo,
    "mode 0644": lambda path: path.chmod(0o644),
    "mode 0400": lambda path: path.chmod(0o400),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FILES)
def test_a_corrupt_file_is_named_and_no_file_is_changed(state: Path, name: str, way: str) -> None:
    WAYS[way](state / name)
    assert Path(name).name in refusal(state) or way == "a link"


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o500])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_others_may_enter_is_named(state: Path, name: str, mode: int) -> None:
    (state / name).chmod(mode)
    assert f"its mode is {mode:04o}" in refusal(state)


def test_a_state_folder_of_another_user_is_refused(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert "not to 4711; give it back with chown" in refusal(state)


@pytest.mark.parametrize("name", FILES[:-1])
def test_a_flipped_bit_in_any_key_file_is_detected(state: Path, name: str) -> None:
    whole = (state / name).read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 40)):
        (state / name).write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 7)]) + whole[at + 1 :])
        refusal(state)
    (state / name).write_bytes(whole)
    ClusterState(state, print).close()


def test_a_flipped_bit_in_the_log_is_detected_or_changes_no_object(state: Path) -> None:
    whole, kept = (state / LOG).read_bytes(), objects(state)
    for at in range(0, len(whole), max(1, len(whole) // 60)):
        for beside in ("log.db-wal", "log.db-shm"):
            (state / "log" / beside).unlink(missing_ok=True)
        (state / LOG).write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        with contextlib.suppress(DiskError):
            assert objects(state) == kept, at


def test_the_last_writes_of_a_cluster_that_was_killed_are_missed(state: Path, tmp_path: Path) -> None:
    log = DiskLog(state / "log")
    log.append(STORE, NamespacedName("default", "last"), Record(21, b"{}", {}, {}), 0)
    killed = shutil.copytree(state, tmp_path / "killed")  # as it lies while the cluster runs
    log.close()
    assert len(objects(shutil.copytree(killed, tmp_path / "again"))) == 21
    (killed / "log" / "log.db-wal").unlink()
    assert "log.db-wal: it is missing, and the last writes" in refusal(killed)
    assert len(objects(state)) == 21  # closed, it needs none


def test_a_newer_format_is_left_to_the_newer_program(state: Path) -> None:
    facts = json.loads((state / KEYS).read_text())
    (state / KEYS).write_text(json.dumps(facts | {"format": 2}))
    assert "written by a newer trainyard (format 2" in refusal(state)


@pytest.mark.parametrize(
    "fact",
    [{"port": 65536}, {"port": -1}, {"port": "x"}, {"port": 10**400}, {"token": "short"}, {"token": 7}, {"key": ""},
     {"certified": []}, {"files": []}, {"files": {"../x": ""}}],
    ids=lambda fact: str(fact)[:30],
)  # fmt: skip
@pytest.mark.parametrize("older", [False, True], ids=["", "older"])
def test_a_fact_that_cannot_be_is_refused(state: Path, fact: dict[str, Any], older: bool) -> None:
    facts = json.loads((state / KEYS).read_text()) | fact
    (state / KEYS).write_bytes(
        json.dumps({name: value for name, value in facts.items() if name not in ("format", "checksum")}).encode()
        if older
        else encode_facts(facts)
    )
    assert FACTS in refusal(state)


def test_up_reports_a_missing_log_and_fresh_moves_it_aside(whole: Path, tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        home.state.mkdir(mode=0o700, parents=True)
        shutil.copytree(whole, home.state / "state")
        (home.state / "state" / LOG).unlink()
        before = contents(home.state / "state")
        code, _, err = home.up()
        assert code == 3 and "log.db: it is missing" in err and "trainyard up --fresh" in err
        assert contents(home.state / "state") == before
        code, _, err = home.up("--fresh")
        assert code == 0 and "its old state was moved to" in err
