"""The administrator's controller config file, and the program texts that Trainyard ships, read into `core.Config`.

Rules:
- `parse_config` is pure and complete: it reports every problem, with the field and what to write instead.
- It accepts what the old operators accepted: `accelerators`, `grpcServerFilePath`, numbers where text is meant. An
  unknown key is a warning, never an error.
- The file is read once, at the start; `trainyard operator` reads it again when it changes (operating.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from trainyard.app.ssh_keys import new_ssh_key
from trainyard.core.model import Config
from trainyard.objects import Json, Problem
from trainyard.objects.yaml_builder import DOCUMENT, Value
from trainyard.objects.yaml_reader import ManifestError, load

PS_SERVER = "grpc_tensorflow_server.py"
_INSIDE = "controller_config_file.yaml"  # the key of the file in the ConfigMap of the READMEs
_ITEM_FIELDS = {"volumes": ("name", "mountPath", "hostPath"), "envVars": ("name", "value")}


class ConfigError(Exception):
    """The config cannot be used; `problems` has the reasons."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class Parsed(msgspec.Struct):
    """A parsed config file."""

    accelerators: dict[str, Json] = msgspec.field(default_factory=dict)
    server_path: str = ""
    problems: list[Problem] = msgspec.field(default_factory=list)
    warnings: list[Problem] = msgspec.field(default_factory=list)


def read_config(path: Path | None, warn: Callable[[str], None]) -> Config:
    """The config in `path`, without a path the empty one; with the shipped files. `warn` gets each warning. Raises
    ConfigError."""
    if path is None:
        return shipped_config()
    files = shipped_files()
    try:
        text = path.read_bytes()
    except OSError as error:
        reason = f"cannot be read ({error.strerror}); name a controller config file that can be read"
        raise ConfigError([Problem(f"{path}:1: file", reason)]) from None
    parsed = parse_config(text, str(path))
    for warning in parsed.warnings:
        warn(str(warning))
    if parsed.server_path:
        _replace_server(files, parsed.server_path, warn)
    return Config(accelerators=parsed.accelerators, program_files=files, new_ssh_key=new_ssh_key)


def shipped_config() -> Config:
    """The config without a file of the administrator."""
    return Config(program_files=shipped_files(), new_ssh_key=new_ssh_key)


def shipped_files() -> dict[str, str]:
    """The program texts that jobs can mount, by file name."""
    folder = resources.files("trainyard.kinds") / "files"
    if not folder.is_dir():
        return {}
    return {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}


def _replace_server(files: dict[str, str], path: str, warn: Callable[[str], None]) -> None:
    """Use the server program that the administrator names. If it cannot be read (as the path of the old images), the
    shipped one is used."""
    try:
        files[PS_SERVER] = Path(path).read_text()
    except (OSError, ValueError):
        warn(f"grpcServerFilePath: {path} cannot be read; the parameter server program of Trainyard is used instead")


def parse_config(text: str | bytes, source: str) -> Parsed:
    """Parse a config file, or the ConfigMap that holds one. Raises ConfigError with all problems."""
    try:
        documents = load(text, source)
    except ManifestError as error:
        raise ConfigError(error.problems) from None
    if len(documents) > 1:
        raise ConfigError(
            [Problem(f"{source}:{documents[1].line}: {DOCUMENT}", "is a second document; write one, without '---'")]
        )
    parsed = Parsed()
    top = documents[0].value if documents else {}
    if isinstance(top, dict) and top.get("kind") == "ConfigMap":
        return _parse_config_map(top, source, _line_of("data", documents))
    if not isinstance(top, dict):
        parsed.problems.append(Problem(DOCUMENT, "is not a mapping; write accelerators: at the top"))
    else:
        _read_top(top, parsed)
    if parsed.problems:
        raise ConfigError(
            [
                Problem(f"{source}:{_line_of(problem.path, documents)}: {problem.path}", problem.text)
                for problem in parsed.problems
            ]
        )
    return parsed


def _line_of(path: str, documents: list[Value]) -> int:
    """The line of a field such as `accelerators[nvidia.com/gpu].volumes`."""
    return documents[0].lines.line_of(re.sub(r"^accelerators\[([^]]+)\]", r"accelerators.\1", path)) if documents else 1


def _parse_config_map(config_map: Mapping[str, Any], source: str, line: int) -> Parsed:
    data = config_map.get("data")
    text = data.get(_INSIDE) if isinstance(data, dict) else None
    if not isinstance(text, str):
        raise ConfigError([Problem(f"{source}:{line}: data", f"has no key {_INSIDE}; write the config under this key")])
    try:
        return parse_config(text, "line")
    except ConfigError as error:
        # "line:3: accelerators" of the text is no place in the file, whose lines the key may have in another form.
        places = [
            Problem(f"{source}:{line}: data[{_INSIDE}]", f"{inner.path}: {inner.text}") for inner in error.problems
        ]
        raise ConfigError(places) from None


def _read_top(top: Mapping[str, Any], parsed: Parsed) -> None:
    for key, value in top.items():
        if key == "accelerators":
            _read_accelerators(value, parsed)
        elif key == "grpcServerFilePath":
            if isinstance(value, str):
                parsed.server_path = value
            else:
                parsed.problems.append(Problem(key, "is not text; write the path of a Python file"))
        else:
            parsed.warnings.append(Problem(key, "is unknown and ignored; known: accelerators, grpcServerFilePath"))


def _read_accelerators(value: Any, parsed: Parsed) -> None:
    if value is None:
        return
    if not isinstance(value, dict):
        expected = "a mapping from resource names to volumes and envVars"
        parsed.problems.append(Problem("accelerators", f"is not {expected}; write one"))
        return
    for resource, entry in value.items():
        path = f"accelerators[{resource}]"
        if entry is not None and not isinstance(entry, dict):
            parsed.problems.append(Problem(path, "is not a mapping; write volumes: and envVars: under it"))
            continue
        parsed.accelerators[resource] = _read_entry(entry or {}, path, parsed)


def _read_entry(entry: Mapping[str, Any], path: str, parsed: Parsed) -> Json:
    result: Json = {}
    for key, items in entry.items():
        if key not in _ITEM_FIELDS:
            parsed.warnings.append(Problem(f"{path}.{key}", "is unknown and ignored; known: volumes, envVars"))
        elif items is not None and not isinstance(items, list):
            parsed.problems.append(Problem(f"{path}.{key}", "is not a list; begin each item with '- name:'"))
        else:
            result[key] = [
                _read_item(item, _ITEM_FIELDS[key], f"{path}.{key}[{index}]", parsed)
                for index, item in enumerate(items or [])
            ]
    return result


def _read_item(item: Any, fields: tuple[str, ...], path: str, parsed: Parsed) -> dict[str, str]:
    if not isinstance(item, dict):
        parsed.problems.append(Problem(path, f"is not a mapping; write {', '.join(fields)}"))
        return {}
    for key in item.keys() - set(fields):
        parsed.warnings.append(Problem(f"{path}.{key}", f"is unknown and ignored; known: {', '.join(fields)}"))
    result: dict[str, str] = {}
    for key in fields:
        value = item.get(key)
        if isinstance(value, (dict, list)):
            parsed.problems.append(Problem(f"{path}.{key}", "is not text; write it as text"))
        elif value is None and key != "value":
            parsed.problems.append(Problem(f"{path}.{key}", "is missing; write it"))
        else:
            result[key] = _text(value)
    return result


def _text(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
