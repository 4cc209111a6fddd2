"""`trainyard doctor`: what this machine can run, and what to install for the rest. It changes nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import click
import msgspec
from msgspec.structs import asdict

from trainyard.cli.command import options
from trainyard.cli.command.codes import INTERRUPTED, UNAVAILABLE
from trainyard.cli.output.layout import terminal_width, wrapped
from trainyard.objects.structs import replace

OK, LIMITED, BROKEN = "ok", "limited", "broken"
NETWORKS = ("namespace", "shared")
_START_TIMEOUT = 30.0  # seconds until a cluster of one node must be ready
_INDEX_TIMEOUT = 20.0  # seconds until the package index must answer
_PACKAGE = "msgspec"
_MIN_FREE_BYTES = 2 * 10**9  # the size of an environment with TensorFlow


class Check(msgspec.Struct, frozen=True):
    """The result of one check. `state`: ok; limited: some jobs cannot run; broken: no job can run."""

    name: str
    state: str
    text: str
    fix: str = ""


@click.command()
@click.option("--cache", metavar="DIR", default="", help=options.CACHE)
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="Output format.")
def doctor(cache: str, output: str | None) -> None:
    """Check what this machine can run, and print how to fix the rest.

    It starts a process in each network, contacts the package index, and changes nothing. Exit code 3 if no network
    works: then no job can run here.

    Example: trainyard doctor
    """
    from trainyard.cli.output.printing import as_json, as_yaml

    logging.basicConfig(level=os.environ.get("TRAINYARD_LOG", "ERROR").upper())  # the table has the findings
    try:
        checks = asyncio.run(_checks(Path(cache).absolute() if cache else None))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    if output:
        listed = [asdict(check) for check in checks]
        click.echo((as_json if output == "json" else as_yaml)(listed).rstrip("\n"))
    else:
        click.echo("\n".join(rendered(checks, terminal_width(1))))
    sys.exit(UNAVAILABLE if any(check.state == BROKEN for check in checks) else 0)


def rendered(checks: list[Check], width: int) -> list[str]:
    """A line for each check and its fix below it, wrapped at `width` columns."""
    name_width = max(len(check.name) for check in checks) + 2
    state_width = max(len(check.state) for check in checks) + 2
    lines: list[str] = []
    for check in checks:
        lines += wrapped(check.text, width, f"{check.name:{name_width}}{check.state:{state_width}}")
        if check.fix:
            indent = " " * (name_width + state_width)
            lines += wrapped(check.fix, width, f"{indent}do: ", f"{indent}    ")
    return lines


async def _checks(cache: Path | None) -> list[Check]:
    from trainyard.app.catalogues import cache_folder

    cache = cache or cache_folder()
    networks = [await _network(name) for name in NETWORKS]
    if any(check.state == OK for check in networks):  # one network is enough
        networks = [check if check.state == OK else replace(check, state=LIMITED) for check in networks]
    other_checks = [
        _python(),
        *await _images(cache),
        _memory(),
        *await _devices(),
        _cache(cache),
        await _index(),
        _cluster(),
        _kubectl(),
    ]
    return [*networks, *other_checks]


async def _network(name: str) -> Check:
    """Start a cluster of one node with that network; its start runs a program in the network."""
    from trainyard.app.local import LocalCluster, LocalClusterOptions
    from trainyard.node.kubelet.node import NodeError

    with tempfile.TemporaryDirectory(prefix="trainyard-doctor-") as state:
        cluster = LocalCluster(
            LocalClusterOptions(network=name, operator=False, parent=Path(state), say=lambda _: None)
        )
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                await cluster.start()
        except (NodeError, OSError, TimeoutError) as error:
            reason = str(error).partition("; try --network")[0] or f"not up after {_START_TIMEOUT:.0f} s"
            return Check(f"network {name}", BROKEN, reason, _NETWORK_FIXES[name])
        finally:
            await cluster.stop(kill=True)
    return Check(f"network {name}", OK, _NETWORK_TEXTS[name])


_NETWORK_TEXTS = {
    "namespace": "every pod has an address and ports of its own; Services and names resolve",
    "shared": "pods share this machine's network; names in arguments and variables are rewritten to loopback",
}
_NETWORK_FIXES = {
    "namespace": "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1; on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0), or go on with --network shared, which `auto` chooses",
    "shared": "see that this user may start processes and listen on 127.0.0.1",
}


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    text = f"trainyard runs on Python {version} ({sys.executable})"
    if sys.version_info[:2] > (3, 13):
        fix = "install trainyard with Python 3.11, 3.12 or 3.13: TensorFlow 2.21 has no build for a newer one"
        return Check("python", LIMITED, text, fix)
    return Check("python", OK, text)


async def _images(cache: Path) -> list[Check]:
    """The number of ready images of the catalogues; a check for each image that is not installed or lacks something."""
    from trainyard.app.catalogues import catalogues
    from trainyard.node.images import Images
    from trainyard.node.images.inventory import entry_states
    from trainyard.objects.manifest import ManifestError

    try:
        images = Images(catalogues(()), cache, lambda _: None)
    except ManifestError as error:
        return [Check("images", BROKEN, str(error.problems[0]), "mend the catalogue: docs/images.md")]
    try:
        states = await entry_states(images)
    finally:
        await images.close()
    ready = [state for state in states if state.state == "ready"]
    checks = [
        Check("images", OK, f"{len(ready)} of {len(states)} known images are ready; `trainyard images` lists them")
    ]
    for state in states:
        pattern = state.entry.match[0]
        if state.state == "install" and state.available:
            size = state.available.provider.download or "an unknown size"
            checks.append(
                Check(f"  {pattern}", OK, f"{state.available.name} is installed at first use ({size} to download)")
            )
        elif state.state == "missing":
            checks.append(Check(f"  {pattern}", LIMITED, "; or ".join(state.missing)))
    return checks


def _memory() -> Check:
    from trainyard.node.supervisor.memory import mechanism as memory_limits

    mechanism = memory_limits()
    if mechanism == "none":
        return Check("memory limits", LIMITED, "not enforced: there is no /proc", "run on Linux")
    mechanism_text = "the processes are looked at five times a second" if mechanism == "sampling" else mechanism
    return Check("memory limits", OK, f"enforced ({mechanism_text})")


async def _devices() -> list[Check]:
    """The GPUs, who uses them, and whether the driver and the frameworks fit together."""
    from trainyard.cli.device_checks import device_findings, usual_interpreters

    lines, problems = await device_findings(usual_interpreters())
    checks = [Check(name, OK, text) for name, text in lines]
    return [*checks, *(Check("gpus", LIMITED, text, fix) for text, fix in problems)]


def _cache(cache: Path) -> Check:
    existing_folder = cache
    while not existing_folder.exists():
        existing_folder = existing_folder.parent
    free = shutil.disk_usage(existing_folder).free
    text = f"{cache}: {free / 1e9:.1f} GB free"
    if not os.access(existing_folder, os.W_OK):
        return Check(
            "cache", LIMITED, f"{text}, and it cannot be written", f"chown {existing_folder}, or use --cache DIR"
        )
    if free < _MIN_FREE_BYTES:
        return Check("cache", LIMITED, text, "free some space, or use --cache DIR: TensorFlow alone takes 1.7 GB")
    return Check("cache", OK, text)


async def _index() -> Check:
    """Look a small package up in the package index, with the program that builds environments (uv or pip)."""
    from trainyard.node.images.interpreters import find_uv

    if program := find_uv():
        argv = [program, "pip", "compile", "--no-deps", "--refresh", "--quiet", "-"]
    else:
        argv = [sys.executable, "-m", "pip", "index", "versions", "--retries", "0", "--timeout", "5", _PACKAGE]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(_INDEX_TIMEOUT):
            errors = (await process.communicate(_PACKAGE.encode()))[1].decode(errors="replace")
    except TimeoutError:
        process.kill()
        await process.wait()
        errors = f"no answer within {_INDEX_TIMEOUT:.0f} s"
    if process.returncode == 0:
        return Check("package index", OK, "it answers: environments of images can be installed")
    if "No module named pip" in errors:
        text = "not asked: there is no uv on PATH, and the Python that runs trainyard has no pip"
        return Check("package index", LIMITED, text, "install uv: environments of images are built with it")
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    fix = "check the network and the proxy, or set PIP_INDEX_URL and UV_INDEX_URL; environments that are built stay"
    return Check("package index", LIMITED, lines[-1] if lines else "it does not answer", fix)


def _cluster() -> Check:
    from trainyard.app.background.cluster_folders import BackgroundError, cluster_names
    from trainyard.app.background.clusters import Background
    from trainyard.cli.status import stall_text

    try:
        up = [name for name in cluster_names() if Background(name).facts() is not None]
    except BackgroundError as error:
        return Check("cluster of `up`", LIMITED, str(error), "set XDG_STATE_HOME to a folder of yours")
    for name in up:
        if stall := Background(name).longest_stall():
            fix = "give it a CPU of its own, or report the place if that does not help"
            return Check("cluster of `up`", LIMITED, f"{name}: {stall_text(stall)}", fix)
    if up:
        return Check("cluster of `up`", OK, f"up: {', '.join(up)}")
    return Check("cluster of `up`", OK, "none is up; `trainyard up` starts one, `trainyard run` needs none")


def _kubectl() -> Check:
    path = shutil.which("kubectl")
    if path is None:
        return Check("kubectl", OK, "not on PATH; trainyard's own commands need none")
    return Check("kubectl", OK, path)
