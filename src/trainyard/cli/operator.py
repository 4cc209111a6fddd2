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
    help="Kubeconfig file.  [default: $USE_KUBE_CONFIG, $KUBECONFIG, else the service account of the pod]",
)
@click.option("--context", metavar="NAME", default="", help="Context of the kubeconfig.  [default: the current one]")
@click.option(
    "-n",
    "--namespace",
    metavar="NAMESPACE",
    default=lambda: os.environ.get("KUBEFLOW_NAMESPACE", ""),
    help="Namespace to watch.  [default: $KUBEFLOW_NAMESPACE, else all]",
)
@click.option(
    "--kinds",
    "served",
    metavar="KIND,...",
    default=",".join(kinds.unique_name(kind) for kind in operator_rbac.DEFAULT),
    show_default=True,
    help="Kinds of jobs to reconcile, or all; chainerjob needs more permissions.",
)
@click.option(
    *("--controller-config-file", "--controller_config_file", "config"),
    metavar="FILE",
    help="Config file (accelerators); reloaded when it changes.",
)
@click.option(
    "--optional-controller-config",
    "config_optional",
    is_flag=True,
    help="Start without the config file if it is missing, and load it when it appears.",
)
@click.option("--leader-elect", is_flag=True, help="Elect a leader with a Lease, for several replicas of the operator.")
@click.option(
    "--lease-namespace",
    metavar="NAMESPACE",
    default="default",
    show_default=True,
    help="Namespace of the Leases, the same for all operators of a cluster.",
)
@click.option(
    "--lease-duration",
    type=click.IntRange(2, 3600),
    metavar="SECONDS",
    default=4,
    show_default=True,
    help="Time without a renewal after which another replica becomes the leader.",
)
@click.option(
    "--node-lost-timeout",
    "node_lost",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=None,
    help="Force-delete a terminating pod of a lost node SECONDS after its grace period.  [default: never]",
)
@click.option(
    "--cluster-domain",
    "domain",
    metavar="DOMAIN",
    default="",
    help="DNS domain of the cluster.  [default: from /etc/resolv.conf of the pod, else cluster.local]",
)
@click.option(
    "--metrics-bind-address",
    "bind",
    metavar="HOST:PORT",
    default="0",
    help="Address of /metrics, /healthz and /readyz; :8080 listens on all addresses, 0 on none.  [default: 0]",
)
@click.option(
    "--health-probe-bind-address",
    "probe_bind",
    metavar="HOST:PORT",
    default="0",
    help="Second address of /healthz and /readyz; 0: none.  [default: 0]",
)
@click.option(
    "--gang-scheduler-name",
    "gang_scheduler",
    metavar="NAME",
    default="",
    help="Gang scheduler for which PodGroups are created: native (kube-scheduler itself, from Kubernetes 1.37 on), "
    "volcano, the schedulerName of scheduler-plugins, or auto, the one that is there.  [default: none]",
)
@click.option(
    "--trainjob-mode",
    "trainjob_mode",
    type=click.Choice(("auto", "pods")),
    default="auto",
    show_default=True,
    help="auto: create the pods of TrainJobs, unless Kubeflow Trainer is installed in the cluster; pods: create them "
    "although its ValidatingWebhookConfiguration is there.",
)
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True, help="Format of the log.")
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Minimum level of log messages."
)
@training_operator_flags.options
@click.pass_context
def operator(context: click.Context, /, **_: Any) -> None:
    """Run the operator, the controller that creates the pods of jobs, until SIGTERM.

    In a pod it uses the service account; elsewhere --kubeconfig, $USE_KUBE_CONFIG or $KUBECONFIG. The flags of
    Kubeflow's training-operator are accepted, too: see docs/operator.md.
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
        beside_other_controllers=params["trainjob_mode"] == "pods",
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
