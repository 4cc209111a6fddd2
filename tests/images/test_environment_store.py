"""The environments in the cache: sizes, use, and removal. Built by a scripted installer, with real locks and files."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.image_fixtures import make, messages
from trainyard.node.images import Images, store
from trainyard.node.images.inventory import entry_states, used_by_entry

__all__ = ["make", "messages"]

ENTRY = "images:\n- match: x\n  providers: [{requirements: [a==1], name: Tiny}]\n"
INSTALLER = """#!/bin/sh
if [ "$1" = venv ]; then
    for last; do :; done
    mkdir -p "$last/bin" "$last/lib"
    ln -s {python} "$last/bin/python"
    echo 'home = /nowhere' > "$last/pyvenv.cfg"
    dd if=/dev/urandom of="$last/lib/data" bs=1024 count=300 2> {null}
fi
"""


@pytest.fixture
def installer(tmp_path: Path) -> str:
    """A program that is called as uv is; its environments have a file of 300 kB."""
    program = tmp_path / "installer"
    program.write_text(INSTALLER.format(python=sys.executable, null=os.devnull))
    program.chmod(0o755)
    return str(program)


def only(cache: Path) -> store.Environment:
    (environment,) = store.list_environments(cache)
    return environment


async def test_an_environment_records_its_source_and_is_locked_while_in_use(
    make: Callable[..., Images], installer: str, tmp_path: Path
) -> None:
    images = make(ENTRY, uv=installer)
    await images.prepare("x", False)
    built = only(tmp_path / "cache")
    record = {"name": "Tiny", "image": "x", "catalogue": str(tmp_path / "images-0.yaml"), "python": sys.executable}
    assert record.items() <= built.record.items() and built.name == "Tiny"
    assert built.locked and store.remove(built.folder) is None and built.folder.exists()
    await images.close()
    assert not only(tmp_path / "cache").locked
    freed = store.remove(built.folder)
    assert freed is not None and 300_000 <= freed <= 400_000
    assert list((tmp_path / "cache" / "environments").iterdir()) == []
    await make(ENTRY, uv=installer).prepare("x", False)
    assert only(tmp_path / "cache").folder == built.folder, "it is built again when it is needed"


async def test_any_end_of_the_holder_unlocks_the_environment(
    make: Callable[..., Images], installer: str, tmp_path: Path
) -> None:
    images = make(ENTRY, uv=installer)
    await images.prepare("x", False)
    await images.close()
    folder = only(tmp_path / "cache").folder
    code = "import sys; from pathlib import Path; from trainyard.node.images import store\n"
    code += "store.lock_environment(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", code, folder, stdin=-1, stdout=-1)
    assert holder.stdout is not None and await holder.stdout.readline() == b"held\n"
    assert only(tmp_path / "cache").locked and store.remove(folder) is None
    holder.kill()
    await holder.communicate()
    assert not only(tmp_path / "cache").locked and store.remove(folder)


async def test_an_environment_that_is_being_built_is_not_removed(
    make: Callable[..., Images], installer: str, tmp_path: Path
) -> None:
    images = make(ENTRY, uv=installer)
    await images.prepare("x", False)
    await images.close()
    folder = only(tmp_path / "cache").folder
    lock = os.open(f"{folder}.lock", os.O_RDWR)
    try:
        assert store.try_lock(lock)
        assert store.remove(folder) is None
    finally:
        os.close(lock)
    assert store.remove(folder)


async def test_files_shared_with_another_cache_do_not_count_as_freed(
    make: Callable[..., Images], installer: str, tmp_path: Path
) -> None:
    images = make(ENTRY, uv=installer)
    await images.prepare("x", False)
    await images.close()
    folder = only(tmp_path / "cache").folder
    os.link(folder / "lib" / "data", tmp_path / "in-another-cache")
    os.link(folder / "lib" / "data", folder / "lib" / "again")
    taken = store.disk_usage(folder)
    assert taken.on_disk >= 300_000 and taken.own < 100_000 and taken.on_disk < 500_000, "hard links count once"
    assert store.remove(folder) == taken.own
    assert (tmp_path / "in-another-cache").stat().st_size == 300 * 1024


async def test_an_environment_is_named_by_its_catalogue(
    make: Callable[..., Images], installer: str, tmp_path: Path
) -> None:
    images = make(ENTRY, uv=installer)
    await images.prepare("x", False)
    await images.close()
    built = only(tmp_path / "cache")
    assert used_by_entry(built, make(uv=installer)) == "x", "its catalogue is where it was, though nobody names it now"
    (tmp_path / "images-0.yaml").write_text(ENTRY.replace("a==1", "a==2"))
    assert used_by_entry(built, make(uv=installer)) == ""
    (tmp_path / "images-0.yaml").write_text("not a catalogue")
    assert used_by_entry(built, make(uv=installer)) == ""
    (tmp_path / "other").mkdir()
    (tmp_path / "images-0.yaml").replace(tmp_path / "other" / "images.yaml")
    assert used_by_entry(built, make(ENTRY.replace("x", "other"), uv=installer)) == "other"


async def test_only_a_folder_made_by_a_builder_is_an_environment(tmp_path: Path) -> None:
    folder = tmp_path / "environments"
    for name in ("mine", "a-0123456789abcdef", ".a-0123456789abcdef.4711", ".hidden"):
        (folder / name).mkdir(parents=True)
    (folder / "mine" / "pyvenv.cfg").touch()
    assert store.list_environments(tmp_path) == [] and store.list_environments(tmp_path / "none") == []
    assert [path.name for path in store.list_leftovers(tmp_path)] == [".a-0123456789abcdef.4711"]


async def test_the_remains_of_an_interrupted_build_are_removed_unless_a_builder_holds_them(tmp_path: Path) -> None:
    left = tmp_path / "environments" / ".a-0123456789abcdef.4711"
    left.mkdir(parents=True)
    (left / "wheel").write_bytes(os.urandom(50_000))
    lock = os.open(tmp_path / "environments" / "a-0123456789abcdef.lock", os.O_RDWR | os.O_CREAT)
    try:
        assert store.try_lock(lock) and store.remove_leftover(left) == 0 and left.exists()
    finally:
        os.close(lock)
    assert store.remove_leftover(left) >= 50_000 and not left.exists()


async def test_the_state_of_an_entry_is_that_of_its_first_available_provider(
    make: Callable[..., Images], installer: str
) -> None:
    providers = "[{current: {no_such_module: ''}}, {requirements: [a==1], download: 1 MB}]"
    gone = "[{current: {no_such_module: ''}}, {interpreter: /nowhere/venv}]"
    images = make(f"images:\n- match: x\n  providers: {providers}\n- match: other\n  providers: {gone}\n", uv=installer)
    first, second = (await entry_states(images))[:2]
    assert (first.state, first.missing) == ("install", []) and first.available is not None
    assert second.state == "missing" and "/nowhere/venv does not exist; make it" in second.missing[1]
    await images.prepare("x", False)
    assert (await entry_states(images))[0].state == "ready"
    await images.close()


async def test_a_record_that_cannot_be_read_is_no_record(tmp_path: Path) -> None:
    for text in ("{", json.dumps([1])):
        (tmp_path / store.RECORD).write_text(text)
        assert store.read_record(tmp_path) == {}
