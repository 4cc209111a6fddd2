"""A cluster in a person's own kubeconfig: all else in it stays, and a file that is none is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.app.kubeconfig import KubeconfigError, read_kubeconfig
from trainyard.app.kubeconfig_merge import check_mergeable, merge, own_kubeconfig, remove
from trainyard.app.local import kubeconfig

NAME = "trainyard-default"
PERSONS = """\
apiVersion: v1
kind: Config
current-context: work
preferences: {colors: true}
x-future: &here [1, 0o17, on, "on", 2026-01-01, ~]
clusters:
- name: work
  cluster:
    server: https://work.example:6443
    insecure-skip-tls-verify: true
    x-strange: *here
users:
- {name: ann, user: {token: 0123, exec: {command: login, args: ['a b', "c"], env: null}}}
contexts:
- context: {cluster: work, user: ann, namespace: on}
  name: work
extensions: []
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_text(yaml.safe_dump(kubeconfig("https://127.0.0.1:4444", "secret-token", "PEM", NAME)))
    return path


def known(path: Path) -> object:
    """What a YAML reader sees, with each scalar as it is written."""
    document = yaml.load(path.read_text(), Loader=yaml.BaseLoader)  # noqa: S506  (makes texts and nothing else)
    for section in ("clusters", "users", "contexts"):
        document[section] = [entry for entry in document[section] if entry["name"] != NAME]
    return document


def test_entries_of_others_stay_byte_for_byte(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "config"
    path.write_text(PERSONS)
    before = known(path)
    merge(path, source, NAME)
    assert known(path) == before
    text = path.read_text()
    for part in ("0o17, on,", '"on"', "2026-01-01", "token: 0123", "namespace: on", "'a b'", "*"):
        assert part in text, part
    assert read_kubeconfig([path]).server == "https://work.example:6443", "the current context is another one now"
    ours = read_kubeconfig([path], NAME)
    assert (ours.server, ours.token, ours.ca, ours.namespace) == (
        "https://127.0.0.1:4444",
        "secret-token",
        b"PEM",
        "default",
    )
    merge(path, source, NAME)
    assert path.read_text() == text
    assert remove(path, NAME) and not remove(path, NAME)
    assert known(path) == before and NAME not in path.read_text()


def test_a_namespace_that_a_person_has_chosen_for_our_context_stays(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "config"
    merge(path, source, NAME)
    path.write_text(path.read_text().replace("namespace: default", "namespace: mine"))
    merge(path, source, NAME)
    assert read_kubeconfig([path], NAME).namespace == "mine"


def test_a_kubeconfig_is_utf_8_in_every_locale(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "config"
    path.write_text(PERSONS.replace("name: work", "name: wörk"), "utf-8")
    code = "import sys; from pathlib import Path; from trainyard.app.kubeconfig_merge import merge; "
    code += "merge(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])"
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, path, source, NAME], env=plain, check=True)
    assert "name: wörk" in path.read_text("utf-8") and NAME in path.read_text("utf-8")


@settings(max_examples=25, deadline=None)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(), lambda values: st.lists(values, max_size=3)
        ),
        max_size=5,
    )
)
def test_other_content_of_a_kubeconfig_is_kept(more: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_merged_and_removed(Path(folder), more)


def assert_merged_and_removed(folder: Path, more: dict[str, object]) -> None:
    (folder / "source").write_text(json.dumps(kubeconfig("https://127.0.0.1:4444", "t", "PEM", NAME)))
    path = folder / "config"
    own_words = {"apiVersion", "kind", "clusters", "users", "contexts", "current-context"}
    held = {key: value for key, value in more.items() if key not in own_words}
    path.write_text(yaml.safe_dump({"kind": "Config", **held}))
    merge(path, folder / "source", NAME)
    document = yaml.safe_load(path.read_text())
    assert {key: value for key, value in document.items() if key not in own_words} == held
    assert document["current-context"] == NAME
    remove(path, NAME)
    document = yaml.safe_load(path.read_text())
    assert document["clusters"] == document["users"] == document["contexts"] == [] and document["current-context"] == ""


def test_a_first_kubeconfig_is_for_this_user_alone(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "home" / ".kube" / "config"
    merge(path, source, NAME)
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert read_kubeconfig([path]).token == "secret-token", "it is not the current context"
    assert [path.name for path in path.parent.iterdir()] == ["config"]


def test_a_kubeconfig_that_others_can_read_becomes_private(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "config"
    path.write_text(PERSONS)
    path.chmod(0o644)
    merge(path, source, NAME)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link(tmp_path: Path, source: Path) -> None:
    real = tmp_path / "dotfiles"
    real.write_text(PERSONS)
    path = tmp_path / "config"
    path.symlink_to(real)
    merge(path, source, NAME)
    assert path.is_symlink() and NAME in real.read_text()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not YAML"),
        ("- a list", "is not a kubeconfig"),
        ("just words", "is not a kubeconfig"),
        ("kind: ConfigMap\n", "is not a kubeconfig"),
        ("kind: Config\nclusters: {}\n", "clusters is not a list"),
        ("kind: Config\nusers: [a]\n", "users is not a list"),
        ("\xff\x00", "not YAML"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        ("[" * 5_000, "not YAML"),
        ("#" * (5 << 20), "larger than 4194304 bytes"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_never_written_to(
    tmp_path: Path, source: Path, text: str, message: str
) -> None:
    path = tmp_path / "config"
    path.write_bytes(text.encode("latin-1"))
    for command in (lambda: check_mergeable(path), lambda: merge(path, source, NAME), lambda: remove(path, NAME)):
        with pytest.raises(KubeconfigError, match=message) as refused:
            command()
        assert str(path) in str(refused.value) and "It was not changed" in str(refused.value)
    assert path.read_bytes() == text.encode("latin-1")
    assert {path.name for path in tmp_path.iterdir()} == {"config", "source"}


@pytest.mark.parametrize("kind", ["a FIFO", "a link to a device", "a folder"])
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, source: Path, kind: str) -> None:
    """As root /dev/null was replaced by a file with a token; a FIFO has no writer, and its reader waits for ever."""
    path = tmp_path / "config"
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/null")
    before = path.lstat()
    for command in (lambda: check_mergeable(path), lambda: merge(path, source, NAME), lambda: remove(path, NAME)):
        with pytest.raises(KubeconfigError, match="not a regular file; name another file with") as refused:
            command()
        assert str(path) in str(refused.value)
    assert path.lstat() == before and Path("/dev/null").is_char_device()


def test_a_write_of_another_program_is_waited_for(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text(PERSONS)
    (tmp_path / "config.lock").touch()
    monkeypatch.setattr("trainyard.app.kubeconfig_merge.LOCK_TIMEOUT", 0.1)
    with pytest.raises(KubeconfigError, match=r"config\.lock exists"):
        merge(path, source, NAME)
    assert path.read_text() == PERSONS and (tmp_path / "config.lock").exists()


def test_the_merge_target_is_the_file_that_kubectl_writes_to(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.touch()
    assert own_kubeconfig({"HOME": "/home/ann"}) == Path("/home/ann/.kube/config")
    assert own_kubeconfig({"KUBECONFIG": f"{tmp_path}/new:{there}", "HOME": "/x"}) == there
    assert own_kubeconfig({"KUBECONFIG": f"{tmp_path}/new:{tmp_path}/newer"}) == tmp_path / "newer"
    with pytest.raises(KubeconfigError, match="set KUBECONFIG"):
        own_kubeconfig({})
