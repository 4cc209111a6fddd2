"""`trainyard node`: this machine as a node of a cluster; the pods placed on it run as processes.

Exit codes: 0 told to stop, 1 another has taken the name, 2 the command line or the kubeconfig is wrong, 3 it cannot
join: no cluster answers, the name is held, no network works.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainyard.app.kubeconfig import ClusterAccess, KubeconfigError, find_cluster
from trainyard.cli import options
from trainyard.cli.codes import BAD, CANNOT, FAILED, SUCCEEDED
from trainyard.cli.layout import note
from trainyard.objects import Json, Problem
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.app.joining import JoinedNode, JoinOptions

NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
EFFECTS = "NoSchedule|PreferNoSchedule|NoExecute"
TAINT = re.compile(rf"(?P<key>[A-Za-z0-9][-\w./]*)(=(?P<value>[-\w.]*))?:(?P<effect>{EFFECTS})")
RESOURCE = re.compile(r"([A-Za-z0-9][-\w./]*)=([0-9.]+[A-Za-z]{0,2})")


@click.command()
@click.option("--kubeconfig", metavar="FILE", default="", help="Which cluster.  [default: $KUBECONFIG]")
@click.option("--context", metavar="NAME", default="", help="Which context of it.  [default: the current one]")
@click.option("--name", metavar="NAME", default="", help="What the node is called.  [default: this machine's name]")
@options.runner
@click.option(
    "--capacity", multiple=True, metavar="RESOURCE=N", help="Say that the node has it, too: nvidia.com/gpu=1."
)
@click.option("--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Keep other pods away from it.")
@click.option(
    "--client-ca-file", metavar="FILE", help="Signer of the API server's client certificate.  [the cluster's]"
)
@click.option("--client-name", "callers", multiple=True, metavar="NAME", help="A common name of that certificate.")
@click.option("--tls-cert-file", "certificate", metavar="FILE", help="What the API server is shown, with:")
@click.option("--tls-private-key-file", "key", metavar="FILE", help="its key.  [default: a certificate made now]")
def node(**words: Any) -> None:
    """Join a cluster as a node: pods that its scheduler places here run as processes of this machine, as you.

    For tests and laptops. It is no kubelet, and no isolation is claimed: whoever may make pods in that cluster may run
    programs as you. Ctrl-C ends it and its pods; a second one at once. See docs/node.md.
    """
    logging.basicConfig(level=os.environ.get("TRAINYARD_LOG", "ERROR").upper())
    try:
        access, made = _understood(words)
        code = asyncio.run(_serve(access, made))
    except ManifestError as error:
        for problem in error.problems:
            note(str(problem))
        code = BAD
    except KubeconfigError as error:
        note(str(error))
        code = BAD
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        note(f"cannot join: {error}")
        code = CANNOT
    sys.exit(code)


def _understood(words: dict[str, Any]) -> tuple[ClusterAccess, dict[str, Any]]:
    """The cluster, and what JoinOptions hears beside it."""
    from trainyard.app.joining import API_SERVERS, host_name

    if not words["kubeconfig"] and not os.environ.get("KUBECONFIG"):
        raise ManifestError([Problem("--kubeconfig", "name the kubeconfig of the cluster to join, or set $KUBECONFIG")])
    name = words["name"] or host_name()
    if not NAME.fullmatch(name):
        fix = "write lower-case letters, digits, '-', '.'"
        raise ManifestError([Problem("--name", f"{name!r} is no node's name; {fix}")])
    if bool(words["certificate"]) != bool(words["key"]):
        raise ManifestError([Problem("--tls-cert-file", "and --tls-private-key-file are given together")])
    authority = options.path(words["client_ca_file"])
    made = {
        "name": name,
        "network": words["network"],
        "images": tuple(map(Path, words["images"])),
        "cache": options.path(words["cache"]),
        "python": options.interpreter(words["python"]),
        "mounts": dict(map(options.claim, words["mounts"])),
        "more": dict(map(_resource, words["capacity"])),
        "taints": tuple(map(_taint, words["taints"])),
        "authority": authority.read_bytes() if authority else b"",
        "callers": words["callers"] or API_SERVERS,
        "shown": (Path(words["certificate"]), Path(words["key"])) if words["certificate"] else None,
        "say": note,
    }
    return find_cluster(words["kubeconfig"], words["context"]), made


def _resource(text: str) -> tuple[str, str]:
    if not (found := RESOURCE.fullmatch(text)):
        raise ManifestError([Problem("--capacity", f"{text!r} is not RESOURCE=N; write for example nvidia.com/gpu=1")])
    return found[1], found[2]


def _taint(text: str) -> Json:
    if not (found := TAINT.fullmatch(text)):
        fix = "write for example trainyard.dev/laptop=true:NoSchedule"
        raise ManifestError([Problem("--taint", f"{text!r} is not KEY=VALUE:EFFECT; {fix}")])
    return {name: value for name, value in found.groupdict().items() if value is not None}


async def _serve(access: ClusterAccess, made: dict[str, Any]) -> int:
    from trainyard.app.folder import PrivateFolder
    from trainyard.app.joining import JoinedNode, JoinOptions

    folder = PrivateFolder()
    try:
        chosen = JoinOptions(access=access, state=folder.path, **made)
        return await _life(JoinedNode(chosen), chosen)
    finally:
        folder.close()


async def _life(one: JoinedNode, chosen: JoinOptions) -> int:
    """From the start to the end that somebody asks for."""
    from trainyard.cli.interrupts import Interrupts
    from trainyard.client import ApiError
    from trainyard.node import NodeError

    stop = Interrupts()
    try:
        if await stop.unless(stop.once, one.start()):
            note(f"node {chosen.name} is ready; Ctrl-C ends it and its pods")
            await stop.unless(stop.once, one.lease_taken.wait())
    except (ApiError, NodeError) as error:
        note(f"cannot join: {error}")
        return CANNOT
    finally:
        if not await stop.unless(stop.twice, one.stop()):
            await one.stop(kill=True)
        stop.close()
    return FAILED if one.lease_taken.is_set() else SUCCEEDED
