"""`trainyard operator`: the controller process for a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from trainyard import kinds
from trainyard.app.install import operator_rbac
from trainyard.app.kubeconfig import SERVICE_ACCOUNT, KubeconfigError
from trainyard.app.logging_setup import FORMATS, LEVELS
from trainyard.cli.command import options, training_operator_flags
from trainyard.cli.command.codes import INVALID, UNAVAILABLE
from trainyard.cli.output.layout import note, note_problems
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.app.operating import OperatorOptions

log = logging.getLogger(__name__)


@click.command(cls=training_operator_flags.GoFlagsCommand)
@click.option(
    "--kubeconfig",
    metavar="FILE",
    default="",
    help="Which cluster.  [default: $USE_KUBE_CONFIG, $KUBECONFIG, else this pod's]",
)
@click.option("--context", metavar="NAME", default="", help="Which context of it.  [default: the current one]")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default=lambda: os.environ.get("KUBEFLOW_NAMESPACE", ""),
    help="Serve this namespace only.  [default: $KUBEFLOW_NAMESPACE, else all]",
)
@click.option(
    "--kinds",
    "served",
    metavar="KIND,...",
    default=",".join(kinds.unique_name(kind) for kind in operator_rbac.DEFAULT),
    show_default=True,
    help="Which kinds of job to serve; `all` has chainerjob too, which needs more permissions.",
)
@click.option(
    *("--controller-config-file", "--controller_config_file", "config"),
    metavar="FILE",
    help="The administrator's config (accelerators); read again when it changes.",
)
@click.option(
    "--optional-controller-config",
    "config_optional",
    is_flag=True,
    help="The config file may be missing; it is read when it appears.",
)
@click.option("--leader-elect", is_flag=True, help="Work only while a Lease is held: for more than one replica.")
@click.option(
    "--lease-namespace",
    metavar="NAME",
    default="default",
    show_default=True,
    help="Where the leases are: the same for all operators of a cluster.",
)
@click.option(
    "--lease-duration",
    type=click.IntRange(2, 3600),
    metavar="SECONDS",
    default=4,
    show_default=True,
    help="How long after its last renewal a leader is followed by another.",
)
@click.option(
    "--node-lost-timeout",
    "node_lost",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=None,
    help="Delete pods that are still there so long after they should have ended: their node is lost.  [default: never]",
)
@click.option(
    "--cluster-domain",
    "domain",
    metavar="NAME",
    default="",
    help="The DNS domain of the cluster.  [default: as /etc/resolv.conf of this pod says, else cluster.local]",
)
@click.option(
    "--metrics-bind-address",
    "bind",
    metavar="HOST:PORT",
    default="0",
    help="Where to serve /healthz, /readyz and /metrics; :8080 is every address, 0 is nowhere.  [default: 0]",
)
@click.option(
    "--health-probe-bind-address",
    "probe_bind",
    metavar="HOST:PORT",
    default="0",
    help="Where to serve /healthz and /readyz, too.  [default: 0, nowhere]",
)
@click.option(
    "--gang-scheduler-name",
    "gang_scheduler",
    metavar="NAME",
    default="",
    help="Make PodGroups for gang scheduling: volcano, or the schedulerName of scheduler-plugins; auto is the one of "
    "them whose PodGroups are the only ones that the cluster serves.  [default: none]",
)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True)
@training_operator_flags.options
@click.pass_context
def operator(context: click.Context, /, **_: Any) -> None:
    """Serve the jobs of a cluster until SIGTERM.

    In a pod its service account is used. Outside: --kubeconfig FILE, or the variables $USE_KUBE_CONFIG or $KUBECONFIG.
    The flags of Kubeflow's training-operator are accepted, too: see docs/operator.md.
    """
    from trainyard.app.config import ConfigError
    from trainyard.app.logging_setup import configure_logging

    params, warnings = training_operator_flags.apply(context)
    configure_logging(params["log_format"], params["log_level"])
    for warning in warnings:
        log.warning("%s", warning)
    try:
        operator_options = _parse_options(params)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_operate(operator_options))
    except (ManifestError, ConfigError) as error:
        note_problems(error.problems)
        sys.exit(INVALID)
    except (KubeconfigError, OSError, ValueError) as error:  # ssl.SSLError is an OSError
        note(str(error))
        sys.exit(UNAVAILABLE)


def _parse_options(params: dict[str, Any]) -> OperatorOptions:
    from trainyard.app.config import read_config
    from trainyard.app.operating import (
        OperatorOptions,
        cluster_domain,
        find_cluster,
        lease_identity,
        lease_timings,
        parse_address,
        parse_kinds,
    )

    config_file = options.path(params["config"])
    initial_config = None if params["config_optional"] and config_file and not config_file.exists() else config_file
    access = find_cluster(os.environ, params["kubeconfig"], params["context"])
    served = parse_kinds(params["served"])
    return OperatorOptions(
        access=access,
        kinds=served,
        config=read_config(initial_config, lambda text: note(text)),
        namespace=params["namespace"],
        config_file=config_file,
        lease=lease_identity(os.environ, served, params["namespace"], params["lease_namespace"])
        if params["leader_elect"]
        else None,
        timings=lease_timings(params["lease_duration"]),
        bind=parse_address(params["bind"]),
        probe_bind=parse_address(params["probe_bind"], "--health-probe-bind-address"),
        gang_scheduler=params["gang_scheduler"],
        kubectl_delivery_image=params["delivery_image"],
        master_wait=training_operator_flags.master_wait(params),
        node_lost=params["node_lost"],
        domain=cluster_domain(params["domain"], access.source == str(SERVICE_ACCOUNT)),
    )


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The loop of uvloop if it is installed (the extra `fast`), else that of Python."""
    with contextlib.suppress(ImportError):
        import uvloop

        return uvloop.new_event_loop()
    return asyncio.new_event_loop()


async def _operate(operator_options: OperatorOptions) -> None:
    from trainyard.app.operating import run_operator
    from trainyard.cli.command.signals import StopSignals
    from trainyard.garbage_collection import skip_present_objects

    stop_signals = StopSignals()
    skip_present_objects()
    try:
        await run_operator(operator_options, stop_signals.first)
    finally:
        stop_signals.close()
