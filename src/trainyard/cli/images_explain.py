"""What `trainyard images` prints about catalogue entries: the list, `explain` and `try`."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import time
from pathlib import Path
from typing import Any

import click

from trainyard.cli.command.codes import FAILED, SUCCEEDED, UNAVAILABLE
from trainyard.cli.output.layout import prose, terminal_prose, terminal_table, terminal_width
from trainyard.cli.output.printing import as_json, as_yaml
from trainyard.node.images import Image, Images, PreparedImage, store
from trainyard.node.images.catalogue import SHIPPED
from trainyard.node.images.inventory import EntryState
from trainyard.node.images.progress import format_bytes
from trainyard.node.images.providers import Candidate

_PROGRAM_TIMEOUT = 120.0  # timeout in seconds; the first import of a large framework is slow


def entry_lines(states: list[EntryState], form: str) -> str:
    """The entries, in the order in which an image's name is matched with them."""
    if form in ("json", "yaml"):
        values = [_entry_value(state) for state in states]
        return as_json(values) if form == "json" else as_yaml(values)
    if form == "name":
        return "\n".join(state.entry.match[0] for state in states)
    wide = form == "wide"
    rows = [["IMAGE", "IS", "STATE", "FROM"]]
    for state in states:
        more_count = f" +{len(state.entry.match) - 1}" if len(state.entry.match) > 1 else ""
        patterns = ", ".join(state.entry.match) if wide else f"{state.entry.match[0]}{more_count}"
        source = "shipped" if state.is_shipped else state.entry.source if wide else os.path.basename(state.entry.source)
        rows.append([patterns, _resolved_name(state), _state_text(state), source])
    lines = terminal_table(rows, wide)
    for state in states:
        if state.missing:
            lines.append(terminal_prose(f"{state.entry.match[0]} is missing: {'; or '.join(state.missing)}"))
    return "\n".join(lines)


def _resolved_name(state: EntryState) -> str:
    if state.available is None:
        return state.candidates[0].name
    taken = state.available
    if (
        taken.environment is None
        and taken.python is not None
        and not (taken.provider.needs and not taken.provider.current)
    ):
        return f"Python {taken.python.full_version}"
    return taken.name


def _state_text(state: EntryState) -> str:
    if state.state != "install" or state.available is None:
        return state.state
    download = state.available.provider.download
    return f"would install {download}" if download else "would install"


def _entry_value(state: EntryState) -> dict[str, Any]:
    return {
        "images": list(state.entry.match),
        "catalogue": state.entry.source,
        "shipped": state.is_shipped,
        "state": state.state,
        "is": _resolved_name(state),
        "download": state.available.provider.download if state.available and state.state == "install" else "",
        "problems": state.missing,
    }


# --- One image ------------------------------------------------------------------------------------------------------


async def explain_image(images: Images, image: str, form: str) -> int:
    """Print an image's entry, its providers and the result. Returns exit code 0, or 3 if no provider is available."""
    entry = images.find(image)
    candidates = await images.candidates(image, os.getcwd())
    taken = next((candidate for candidate in candidates if candidate.state != "missing"), None)
    facts = _image_facts(image, entry, candidates, taken)
    if form == "json":
        click.echo(as_json(facts))
    elif form == "yaml":
        click.echo(as_yaml(facts))
    else:
        click.echo("\n".join(_fact_lines(facts)))
    return SUCCEEDED if taken else UNAVAILABLE


def _image_facts(
    image: str, entry: Image | None, candidates: list[Candidate], taken: Candidate | None
) -> dict[str, Any]:
    source = "none" if entry is None else entry.source
    facts: dict[str, Any] = {
        "image": image,
        "entry": ", ".join(entry.match) if entry else "none: an image without an entry runs its pod's command",
        "catalogue": "shipped with trainyard" if source == str(SHIPPED) else source,
        "providers": [_provider_value(candidate, taken) for candidate in candidates],
    }
    if taken is not None and taken.python is not None:
        environment = taken.environment if taken.environment and (taken.environment / "bin").is_dir() else None
        path = str(environment / "bin" / "python") if environment else taken.python.path
        facts["interpreter"] = path if taken.environment is None or environment else f"{taken.python.path}, builds it"
        facts["version"] = taken.python.full_version
        facts["chosen"] = taken.reason
        if environment is not None:
            facts["sizeOnDisk"] = format_bytes(store.disk_usage(environment).on_disk)
        elif taken.provider.download or taken.provider.disk:
            facts["download"], facts["sizeOnDisk"] = taken.provider.download, taken.provider.disk
        facts["variables"] = {**({} if taken.environment else taken.python.variables), **(entry.env if entry else {})}
        if environment is not None:
            facts["variables"] = {"VIRTUAL_ENV": str(environment), **facts["variables"]}
    if entry is not None:
        facts["entrypoint"] = list(entry.entrypoint)
        facts["arguments"] = list(entry.args)
        facts["workingDirectory"] = entry.workdir
        facts["files"] = dict(entry.files)
        facts["folders"] = list(entry.folders)
        facts["path"] = list(entry.path)
    return facts


def _provider_value(candidate: Candidate, taken: Candidate | None) -> dict[str, str]:
    if candidate is taken:
        download = f", {candidate.provider.download} to download" if candidate.provider.download else ""
        state = "taken: it is ready" if candidate.state == "ready" else f"taken: it would be installed{download}"
    elif candidate.problem is not None:
        state = f"not taken: {candidate.problem.message}"
    else:
        state = "not taken: a provider before it is taken"
    return {"name": candidate.name, "state": state}


_TITLES = {
    "image": "Image", "entry": "Entry", "catalogue": "Catalogue", "providers": "Providers",
    "interpreter": "Interpreter",
    "version": "Version", "chosen": "Because of", "download": "Download", "sizeOnDisk": "On disk",
    "variables": "Variables", "entrypoint": "Entrypoint", "arguments": "Arguments", "workingDirectory": "Directory",
    "files": "Files", "folders": "Folders", "path": "On PATH",
}  # fmt: skip


def _fact_lines(facts: dict[str, Any]) -> list[str]:
    lines = []
    for key, title in _TITLES.items():
        wrapped = [
            line for text in _texts(key, facts.get(key)) for line in prose(text, terminal_width() - 13).split("\n")
        ]
        lines += [f"{title if index == 0 else '':13}{line}" for index, line in enumerate(wrapped)]
    return lines


def _texts(key: str, value: Any) -> list[str]:
    if not value:
        return []
    if key == "providers":
        return [f"({number}) {provider['name']}: {provider['state']}" for number, provider in enumerate(value, 1)]
    if key in ("entrypoint", "arguments"):
        return [shlex.join(value)]
    if isinstance(value, dict):
        separator = "=" if key == "variables" else " is "
        return [f"{name}{separator}{text}" for name, text in value.items()]
    return list(value) if isinstance(value, list) else [str(value)]


# --- Trying ---------------------------------------------------------------------------------------------------------


async def try_image(images: Images, image: str) -> int:
    """Prepare an image, run its interpreter, import its modules and check its programs. Returns exit code 0 when
    all checks pass, else 1."""
    prepared = await images.prepare(image, need_command=False, folder=os.getcwd())
    candidates = await images.candidates(image, os.getcwd())
    taken = next(candidate for candidate in candidates if candidate.state != "missing")
    env = {**images.base, **prepared.env}
    env["PATH"] = os.pathsep.join([*prepared.path, images.base["PATH"]])
    results = [await _run_program("python --version", ["python", "--version"], env)]
    for module in _required_modules(taken):
        results.append(await _run_program(f"import {module}", ["python", "-c", f"import {module}"], env))
    results += _check_programs(prepared, env)
    for name, outcome, _ in results:
        click.echo(terminal_prose(f"{name}: {outcome}"))
    if all(works for _, _, works in results):
        click.echo(f"{image} works.")
        return SUCCEEDED
    click.echo(f"{image} does not work; see above.", err=True)
    return FAILED


def _required_modules(taken: Candidate) -> list[str]:
    return list(
        dict.fromkeys([*(taken.provider.current or {}), *([taken.provider.check] if taken.provider.check else [])])
    )


async def _run_program(name: str, argv: list[str], env: dict[str, str]) -> tuple[str, str, bool]:
    """Run a program with the image's environment variables: the check's name, its outcome as text, True if it
    passed."""
    started = time.monotonic()
    program = shutil.which(argv[0], path=env["PATH"])
    if program is None:
        return name, f"fails: there is no {argv[0]} on PATH", False
    try:
        process = await asyncio.create_subprocess_exec(
            program, *argv[1:], env=env, cwd="/", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
    except OSError as error:
        return name, f"fails: {program} cannot be run ({error.strerror})", False
    try:
        async with asyncio.timeout(_PROGRAM_TIMEOUT):
            output, _ = await process.communicate()
    except TimeoutError:
        return name, f"fails: it has not ended within {_PROGRAM_TIMEOUT:.0f} s", False
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    last_line = (output.decode(errors="replace").strip().splitlines() or [""])[-1]
    if process.returncode != 0:
        return name, f"fails: {last_line or f'it ended with code {process.returncode}'}", False
    return name, last_line if argv[1:] == ["--version"] else f"works, {time.monotonic() - started:.1f} s", True


def _check_programs(prepared: PreparedImage, env: dict[str, str]) -> list[tuple[str, str, bool]]:
    """Check that the entrypoint's program exists, and the script if its first argument is an absolute path."""
    command = [*prepared.entrypoint, *prepared.args]
    if not command:
        return [("program", "none: the pod says its command", True)]
    catalogue_file = prepared.files.get(command[0])
    program = catalogue_file or shutil.which(command[0], path=env["PATH"])
    if program is None:
        return [(command[0], "fails: it is not on PATH, or no program; correct the entrypoint", False)]
    checks = [(command[0], program, True)]
    script = next((argument for argument in command[1:2] if argument.startswith("/")), "")
    if script:
        exists = Path(prepared.files.get(script, script)).exists()
        checks.append(
            (script, "is there" if exists else "fails: there is no such file; correct the entrypoint", exists)
        )
    return checks
