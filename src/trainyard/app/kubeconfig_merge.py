"""A background cluster in the user's own kubeconfig: add, update and remove its entries.

Rules:
- The file belongs to the user. All other entries are kept as they are, with unknown fields and the style of the values;
  only comments are lost. The current context is set only when there is none.
- A file that is not a kubeconfig, or not a regular file, is never written.
- A write replaces the file atomically, readable for its owner alone, since it holds a token; of a symlink the target is
  replaced. The lock is that of kubectl: FILE.lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from trainyard.app.kubeconfig import SECTIONS, KubeconfigError

LOCK_TIMEOUT = 5.0  # seconds to wait for another program that holds the lock
MAX_BYTES = 4 << 20  # of a kubeconfig, whose nodes take a hundred times as much memory
POLL_SECONDS = 0.05  # seconds between two attempts to lock
_SEQUENCE, _TEXT = "tag:yaml.org,2002:seq", "tag:yaml.org,2002:str"
_NULL = "tag:yaml.org,2002:null"


def own_kubeconfig(env: Mapping[str, str] = os.environ) -> Path:
    """The user's own kubeconfig: the file that kubectl writes to. Raises KubeconfigError."""
    paths = [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    if paths:
        return next((path for path in paths if path.exists()), paths[-1]).absolute()
    if not env.get("HOME"):
        raise KubeconfigError("there is no home folder; set KUBECONFIG to the file")
    return Path(env["HOME"]) / ".kube" / "config"


def check_mergeable(path: Path) -> None:
    """Raises KubeconfigError when the file exists and no entry can be added to it."""
    _load(path)


def merge(path: Path, source: Path, name: str) -> None:
    """Add the one cluster of the kubeconfig `source` to the file; cluster, user and context are called `name`. Raises
    KubeconfigError."""
    added = yaml.safe_load(source.read_bytes())
    with _locked(path):
        document = _load(path)
        for section, field in SECTIONS.items():
            value, items = dict(added[section][0][field]), _items(path, document, section)
            if section == "contexts":
                value |= {"cluster": name, "user": name, **_namespace_of(items, name)}
            _put(items, name, {"name": name, field: value})
        if not _text(_get(document, "current-context")):
            _set(document, "current-context", yaml.ScalarNode(_TEXT, name))
        _write(path, document)


def remove(path: Path, name: str) -> bool:
    """Remove the entries of that name; whether there were any. Raises KubeconfigError."""
    with _locked(path):
        if not path.exists():
            return False
        document, changed = _load(path), False
        for section in SECTIONS:
            items = _items(path, document, section)
            kept = [item for item in items.value if _name_of(item) != name]
            changed = changed or len(kept) < len(items.value)
            items.value[:] = kept
        if _text(_get(document, "current-context")) == name:
            _set(document, "current-context", yaml.ScalarNode(_TEXT, "", style='"'))
            changed = True
        if changed:
            _write(path, document)
        return changed


# --- the document, as YAML nodes: entries that are not edited keep their style


def _load(path: Path) -> yaml.MappingNode:
    """The kubeconfig as YAML nodes; an empty one when the file does not exist. Raises KubeconfigError."""
    try:
        document = yaml.compose(_read(path).decode(), Loader=yaml.SafeLoader)
    except FileNotFoundError:
        document = None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise KubeconfigError(f"{path}: {reason}; name another file with $KUBECONFIG. It was not changed") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise KubeconfigError(
            f"{path}{line}: not YAML; correct it, or name another file with $KUBECONFIG. It was not changed"
        ) from None
    if document is None:
        document = yaml.compose("apiVersion: v1\nkind: Config\n", Loader=yaml.SafeLoader)
    if not isinstance(document, yaml.MappingNode) or _text(_get(document, "kind")) not in ("Config", ""):
        raise KubeconfigError(f"{path}: is not a kubeconfig; name another file with $KUBECONFIG. It was not changed")
    for section in SECTIONS:
        _items(path, document, section)
    return document


def _read(path: Path) -> bytes:
    """The bytes of a file that may be replaced. Raises OSError, also for a FIFO or a device: $KUBECONFIG is /dev/null
    where somebody switches kubeconfigs off."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if status.st_size > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES} bytes")
    return path.read_bytes()


def _get(document: yaml.MappingNode, key: str) -> yaml.Node | None:
    return next((value for name, value in document.value if name.value == key), None)


def _set(document: yaml.MappingNode, key: str, value: yaml.Node) -> None:
    for index, (name, _) in enumerate(document.value):
        if name.value == key:
            document.value[index] = (name, value)
            return
    document.value.append((yaml.ScalarNode(_TEXT, key), value))


def _items(path: Path, document: yaml.MappingNode, section: str) -> yaml.SequenceNode:
    """The list of that section, added to the document when it is missing. Raises KubeconfigError."""
    node = _get(document, section)
    if node is None or (isinstance(node, yaml.ScalarNode) and node.tag == _NULL):
        node = yaml.SequenceNode(_SEQUENCE, [], flow_style=False)
        _set(document, section, node)
    if not isinstance(node, yaml.SequenceNode) or not all(isinstance(item, yaml.MappingNode) for item in node.value):
        raise KubeconfigError(
            f"{path}: {section} is not a list of entries; correct it, or name another file. It was not changed"
        )
    if not node.value:
        node.flow_style = document.flow_style
    return node


def _namespace_of(items: yaml.SequenceNode, name: str) -> dict[str, str]:
    """The namespace that the user set for the context of that name: `kubectl config set-context --current
    --namespace=x`."""
    context = next((_get(item, "context") for item in items.value if _name_of(item) == name), None)
    namespace = _text(_get(context, "namespace")) if isinstance(context, yaml.MappingNode) else ""
    return {"namespace": namespace} if namespace else {}


def _put(items: yaml.SequenceNode, name: str, entry: dict[str, Any]) -> None:
    """Replace the first entry of that name, or append the entry; remove further entries of that name."""
    node = yaml.compose(yaml.safe_dump(entry, sort_keys=False), Loader=yaml.SafeLoader)
    indexes = [index for index, item in enumerate(items.value) if _name_of(item) == name]
    if indexes:
        items.value[indexes[0]] = node
    else:
        items.value.append(node)
    for index in reversed(indexes[1:]):
        del items.value[index]


def _name_of(item: yaml.Node) -> str:
    return _text(_get(item, "name")) if isinstance(item, yaml.MappingNode) else ""


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) and node.tag != _NULL else ""


# --- the file


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file of kubectl. Errors of the file system, also those of the caller, are raised as
    KubeconfigError."""
    target = path.resolve()
    lock = target.with_name(f"{target.name}.lock")
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                text = f"{path}: another program is writing it ({lock} exists)"
                raise KubeconfigError(f"{text}; try again, or remove that file if no program is") from None
            time.sleep(POLL_SECONDS)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise KubeconfigError(f"{lock}: {reason}; name another file with $KUBECONFIG") from None
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", "") or str(error)).lower()
        raise KubeconfigError(f"{path}: {reason}; it was not changed") from None
    finally:
        lock.unlink(missing_ok=True)


def _write(path: Path, document: yaml.MappingNode) -> None:
    """Replace the file, or the target of the symlink, atomically."""
    target = path.resolve()
    mode = target.stat().st_mode & 0o700 if target.exists() else 0o600
    new_file = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        text = yaml.serialize(document, Dumper=yaml.SafeDumper, width=2**20, allow_unicode=True)
        with os.fdopen(os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(text.encode())  # UTF-8 as in `_load`, whatever the locale is
            file.flush()
            os.fsync(file.fileno())
        new_file.chmod(mode)
        new_file.replace(target)
    except BaseException:
        new_file.unlink(missing_ok=True)
        raise
