"""A cluster in the person's own kubeconfig: written in, kept right, taken out again.

Rules:
- The file is a person's. All that is not ours stays as it is, fields that nobody knows and the way values are written
  included; only comments cannot be kept. The current context is set only where there is none.
- A file that is not a kubeconfig is never written to.
- A write is a new file in the place of the old one, for its owner alone, since there is a token in it; where there is a
  link, in the place of what it leads to. The lock is kubectl's own: FILE.lock.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trainyard.app.kubeconfig import SECTIONS, KubeconfigError

LOCKED = 5.0  # seconds for another program to finish its write
LOOK = 0.05
_MAP, _SEQUENCE, _TEXT = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"


def own(env: Mapping[str, str] = os.environ) -> Path:
    """The person's own kubeconfig: where kubectl writes to. Raises KubeconfigError."""
    named = [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        return next((path for path in named if path.exists()), named[-1]).absolute()
    if not env.get("HOME"):
        raise KubeconfigError("there is no home folder; set KUBECONFIG to the file that is meant")
    return Path(env["HOME"]) / ".kube" / "config"


def must_be_whole(path: Path) -> None:
    """Raises KubeconfigError when the file is there and nothing can be written into it."""
    _load(path)


def merge(path: Path, source: Path, name: str) -> None:
    """Write the one cluster of `source` into the file, with that name for its cluster, its user and its context."""
    ours = yaml.safe_load(source.read_bytes())
    with _locked(path):
        document = _load(path)
        for section, word in SECTIONS.items():
            value, items = dict(ours[section][0][word]), _items(path, document, section)
            if section == "contexts":
                value |= {"cluster": name, "user": name, **_chosen(items, name)}
            _put(items, name, {"name": name, word: value})
        if not _text(_get(document, "current-context")):
            _set(document, "current-context", yaml.ScalarNode(_TEXT, name))
        _write(path, document)


def remove(path: Path, name: str) -> bool:
    """Take it out again. Was it there?"""
    with _locked(path):
        if not path.exists():
            return False
        document, found = _load(path), False
        for section in SECTIONS:
            items = _items(path, document, section)
            left = [one for one in items.value if _name_of(one) != name]
            found = found or len(left) < len(items.value)
            items.value[:] = left
        if _text(_get(document, "current-context")) == name:
            _set(document, "current-context", yaml.ScalarNode(_TEXT, "", style='"'))
            found = True
        if found:
            _write(path, document)
        return found


# --- the document: YAML's nodes, so that what is not touched stays as it was written


def _load(path: Path) -> yaml.MappingNode:
    try:
        text = path.read_text("utf-8")
        document = yaml.compose(text, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        document = None
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        raise KubeconfigError(f"{path}: {what}; name another file with $KUBECONFIG") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise KubeconfigError(
            f"{path}{line}: not YAML; mend it, or name another file with $KUBECONFIG. It stays as it is"
        ) from None
    if document is None:
        document = yaml.compose("apiVersion: v1\nkind: Config\n", Loader=yaml.SafeLoader)
    if not isinstance(document, yaml.MappingNode) or _text(_get(document, "kind")) not in ("Config", ""):
        raise KubeconfigError(f"{path}: is not a kubeconfig; name another file with $KUBECONFIG. It stays as it is")
    for section in SECTIONS:
        _items(path, document, section)
    return document


def _get(document: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for one, value in document.value if one.value == key), None)


def _set(document: yaml.MappingNode, key: str, value: yaml.Node) -> None:
    for at, (one, _) in enumerate(document.value):
        if one.value == key:
            document.value[at] = (one, value)
            return
    document.value.append((yaml.ScalarNode(_TEXT, key), value))


def _items(path: Path, document: yaml.MappingNode, section: str) -> yaml.SequenceNode:
    """The list of that section, made when it is not there."""
    found = _get(document, section)
    if found is None or (isinstance(found, yaml.ScalarNode) and found.tag == _NULL):
        found = yaml.SequenceNode(_SEQUENCE, [], flow_style=False)
        _set(document, section, found)
    if not isinstance(found, yaml.SequenceNode) or not all(isinstance(one, yaml.MappingNode) for one in found.value):
        raise KubeconfigError(
            f"{path}: {section} is not a list of entries; mend it, or name another file. It stays as it is"
        )
    if not found.value:
        found.flow_style = document.flow_style
    return found


def _chosen(items: yaml.SequenceNode, name: str) -> dict[str, str]:
    """What a person has chosen for the context of that name: `kubectl config set-context --current --namespace=x`."""
    context = next((_get(one, "context") for one in items.value if _name_of(one) == name), None)
    namespace = _text(_get(context, "namespace")) if isinstance(context, yaml.MappingNode) else ""
    return {"namespace": namespace} if namespace else {}


def _put(items: yaml.SequenceNode, name: str, entry: dict[str, Any]) -> None:
    """The entry, in the place of the one of that name; further ones of that name go."""
    node = yaml.compose(yaml.safe_dump(entry, sort_keys=False), Loader=yaml.SafeLoader)
    places = [at for at, one in enumerate(items.value) if _name_of(one) == name]
    if places:
        items.value[places[0]] = node
    else:
        items.value.append(node)
    for at in reversed(places[1:]):
        del items.value[at]


def _name_of(item: yaml.Node) -> str:
    return _text(_get(item, "name")) if isinstance(item, yaml.MappingNode) else ""


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) and node.tag != _NULL else ""


# --- the file


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    real = path.resolve()
    lock = real.with_name(f"{real.name}.lock")
    until = time.monotonic() + LOCKED
    while True:
        try:
            real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            break
        except FileExistsError:
            if time.monotonic() > until:
                text = f"{path}: another program is writing it ({lock} is there)"
                raise KubeconfigError(f"{text}; try again, or remove that file if none is") from None
            time.sleep(LOOK)
        except OSError as error:
            what = (error.strerror or str(error)).lower()
            raise KubeconfigError(f"{lock}: {what}; name another file with $KUBECONFIG") from None
    try:
        yield
    except (OSError, UnicodeError) as error:
        what = (getattr(error, "strerror", "") or str(error)).lower()
        raise KubeconfigError(f"{path}: {what}; it stays as it was") from None
    finally:
        lock.unlink(missing_ok=True)


def _write(path: Path, document: yaml.MappingNode) -> None:
    real = path.resolve()
    mode = real.stat().st_mode & 0o700 if real.exists() else 0o600
    early = real.with_name(f".{real.name}.{os.getpid()}.new")
    try:
        text = yaml.serialize(document, Dumper=yaml.SafeDumper, width=2**20, allow_unicode=True)
        with os.fdopen(os.open(early, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(text.encode())  # as it is read, whatever the locale says
            file.flush()
            os.fsync(file.fileno())
        early.chmod(mode)
        early.replace(real)
    except BaseException:
        early.unlink(missing_ok=True)
        raise
