"""The operator as a program: one process beside an API server, until it is told to stop.

    await operate(options, stop)

Rules for this file:
- It only ties together: who we are (kubeconfig.py), the operator (control), the admin's config file and its changes.
- Going down takes less than a second, whoever does not answer: what is under way is abandoned, which is harmless.
- One operator, one Api: nothing but the operator's own requests goes through it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainyard import kinds
from trainyard.app.config import ConfigError
from trainyard.app.config import read as read_config
from trainyard.app.kubeconfig import SERVICE_ACCOUNT, Access, KubeconfigError, in_cluster, read
from trainyard.client import Api
from trainyard.control import Operator
from trainyard.core import Config, Kind
from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0  # between two looks at the config file


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line said, understood."""

    access: Access
    kinds: tuple[Kind, ...]
    config: Config
    namespace: str = ""
    config_file: Path | None = None


def whom(env: Mapping[str, str], named: str = "", context: str = "", folder: Path = SERVICE_ACCOUNT) -> Access:
    """The cluster to serve: what is named, what the environment names, or the cluster of this pod.

    The cluster of `trainyard up` has an operator and is never taken unasked. Raises KubeconfigError.
    """
    if named or env.get("USE_KUBE_CONFIG"):
        return read([Path(named or env["USE_KUBE_CONFIG"])], context)
    if given := [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return read(given, context)
    if (access := in_cluster(env, folder)) is not None:
        return access
    text = "no cluster: this is no pod with a service account; name one with --kubeconfig FILE, $USE_KUBE_CONFIG"
    raise KubeconfigError(f"{text} or $KUBECONFIG")


def chosen(words: str) -> tuple[Kind, ...]:
    """The kinds that a comma-separated list names, each under every group it is served in. Raises ManifestError."""
    known = {kind.singular: kind for kind in kinds.EACH}
    others = {alias: kind.singular for kind in kinds.EACH for alias in (kind.gvk.plural, *kind.short_names)}
    names: list[str] = []
    for word in (part.strip().lower() for part in words.split(",") if part.strip()):
        name = others.get(word, word)
        if word != "all" and name not in known:
            text = f"{word!r} is no kind of job; known are: {', '.join(known)}, all"
            raise ManifestError([Problem("--kinds", text)])
        names += known if word == "all" else [name]
    if not names:
        raise ManifestError([Problem("--kinds", f"names no kind; write some of: {', '.join(known)}, all")])
    return kinds.served(known[name] for name in dict.fromkeys(names))


async def operate(options: Options, stop: asyncio.Event) -> None:
    """Serve until `stop`."""
    async with Api(options.access.server, options.access.credentials(), agent="trainyard-operator") as api:
        operator = Operator(api, options.kinds, options.config, options.namespace)
        following = asyncio.create_task(follow_config(options.config_file, operator.configure))
        await operator.start()
        try:
            await stop.wait()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await operator.stop()


async def follow_config(path: Path | None, use: Callable[[Config], None], pause: float = LOOK_SECONDS) -> None:
    """Tell `use` of each new content of the config file. One that cannot be used is said, and the last good one stays.

    A mounted ConfigMap changes by swapping a link far above the file, so it is the content that is compared.
    """
    if path is None:
        return
    known = _content(path)
    while True:
        await asyncio.sleep(pause)
        if (now := _content(path)) is None or now == known:
            continue  # away for a moment while it is swapped, or the same
        known = now
        try:
            use(read_config(path, lambda text: log.warning("controller config: %s", text)))
        except ConfigError as error:
            for problem in error.problems:
                log.error("the new controller config is not used, the old one stays why=%s", problem)
        else:
            log.info("controller config read again file=%s", path)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
