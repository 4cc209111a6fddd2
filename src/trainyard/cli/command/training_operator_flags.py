"""The flags of Kubeflow's training-operator (v1.9.4), which `trainyard operator` accepts: a Deployment keeps its args.

Rules for this file:
- A flag with a meaning here is an option of `trainyard operator`, or is mapped to one by `apply`.
- Any other is accepted, hidden from --help, and has a warning that says why it has no effect (NO_EFFECT).
- They are written as the flag package of Go accepts them: with one dash or two, booleans as `--leader-elect=true`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from trainyard import kinds
from trainyard.app.logging_setup import LEVELS
from trainyard.core import MasterWait
from trainyard.kinds.kubeflow_v1.job import GROUP
from trainyard.kinds.kubeflow_v1.master_wait import parse_template
from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError
from trainyard.objects.structs import replace

log = logging.getLogger(__name__)
F = TypeVar("F", bound=Callable[..., Any])

_LEASES = "the name of a Lease lists the kinds and the namespace that its operator serves"
_RATE = "requests are not limited to a fixed rate: the API server's Retry-After and 429 slow them down"
_WEBHOOK = "there is no webhook: schema and CEL rules of the definitions validate jobs in the API server"
NO_EFFECT: dict[str, str] = {
    "--leader-election-id": _LEASES,
    "--controller-threads": "jobs are reconciled concurrently in one event loop",
    "--kube-api-qps": _RATE,
    "--kube-api-burst": _RATE,
    "--webhook-server-port": _WEBHOOK,
    "--webhook-service-name": _WEBHOOK,
    "--webhook-secret-name": _WEBHOOK,
    "--zap-devel": "the log has one format for production and development",
    "--zap-stacktrace-level": "a traceback follows each unexpected error",
    "--zap-time-encoding": "times are written as in RFC 3339",
}
"""The flags without an effect, with the reason."""

TEMPLATE_FILE = "--pytorch-init-container-template-file"
_ZAP_ENCODERS = {"console": "text", "json": "json"}  # -> --log-format


class GoFlagsCommand(click.Command):
    """A command whose long options may be written as Go programs accept them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As of click, after the options have been brought into its form."""
        options = {
            name: param for param in self.params if isinstance(param, click.Option) for name in (*param.opts, "--help")
        }
        return super().parse_args(ctx, [word for arg in args for word in _normalize(arg, options)])


def _normalize(arg: str, options: dict[str, click.Option]) -> list[str]:
    """The words for click: `-name=value` with two dashes, a flag `--name=true` without its value, `--name=false` as
    none."""
    name, equals, value = arg.partition("=")
    if name.startswith("-") and f"-{name}" in options:
        name = f"-{name}"
    option = options.get(name)
    if option is not None and option.is_flag and equals and value.lower() in ("true", "false", "1", "0", "t", "f"):
        return [name] if value.lower() in ("true", "1", "t") else []
    return [f"{name}{equals}{value}"]


def options(command: F) -> F:
    """Add the flags to a command. `apply` evaluates them."""
    for name in reversed(NO_EFFECT):
        # With `flag_value` the option may stand without a value, as booleans do in Go.
        add_option: Callable[[F], F] = click.option(name, hidden=True, is_flag=False, flag_value="true", default=None)
        command = add_option(command)
    decorators: tuple[Callable[[F], F], ...] = (
        click.option("--mpi-kubectl-delivery-image", "delivery_image", metavar="IMAGE", default="", hidden=True),
        click.option("--pytorch-init-container-image", "init_image", metavar="IMAGE", default="", hidden=True),
        click.option(
            "--pytorch-init-container-max-tries", "init_tries", type=click.IntRange(1), default=100, hidden=True
        ),
        click.option(TEMPLATE_FILE, "init_template", default="", hidden=True),
        click.option("--enable-scheme", "schemes", multiple=True, metavar="KIND", hidden=True),
        click.option("--zap-encoder", type=click.Choice(list(_ZAP_ENCODERS)), hidden=True),
        click.option("--zap-log-level", metavar="LEVEL", hidden=True),
    )
    for decorator in decorators:
        command = decorator(command)
    return command


def apply(context: click.Context) -> tuple[dict[str, Any], list[str]]:
    """The parameters of the command with the flags applied, and the warnings about those without an effect."""
    params = dict(context.params)
    written = {
        name for name in params if context.get_parameter_source(name) not in (ParameterSource.DEFAULT, None)
    }  # on the command line, or a default of the user
    if params["schemes"]:
        served = [params["served"]] if "served" in written else []
        params["served"] = ",".join([*served, *map(_kind_of_scheme, params["schemes"])])
    if params["zap_encoder"] and "log_format" not in written:
        params["log_format"] = _ZAP_ENCODERS[params["zap_encoder"]]
    if params["zap_log_level"] and "log_level" not in written:
        params["log_level"] = _log_level(params["zap_log_level"])
    warnings = [
        f"{name} has no effect: {reason}" for name, reason in NO_EFFECT.items() if params[_parameter(name)] is not None
    ]
    return params, warnings


def master_wait(params: dict[str, Any]) -> MasterWait:
    """The init container of a PyTorchJob's workers. A template file that is missing is as good as none, as for the
    training operator. Raises ManifestError."""
    settings = MasterWait(params["init_image"], params["init_tries"])
    if not (file := params["init_template"]):
        return settings
    try:
        text = Path(file).read_text()
    except FileNotFoundError:
        log.warning("%s: %s does not exist, so it has no effect", TEMPLATE_FILE, file)
        return settings
    except (OSError, ValueError) as error:
        raise ManifestError([Problem(TEMPLATE_FILE, f"{file} cannot be read ({error})")]) from None
    return replace(settings, containers=parse_template(text, file, settings))


def _kind_of_scheme(name: str) -> str:
    """The kind of `--enable-scheme`: its tfjob is that of kubeflow.org."""
    return next((kinds.unique_name(kind) for kind in kinds.kinds_named(f"{name}.{GROUP}")), name)


def _parameter(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")


def _log_level(zap_level: str) -> str:
    """The --log-level for a level of zap: a name, or a number, which means debug. Raises click.BadParameter."""
    level = zap_level.lower()
    if level.isdecimal():
        return "debug" if level != "0" else "info"
    if level in ("dpanic", "panic", "fatal"):
        return "error"
    if level == "warn":
        return "warning"
    if level not in LEVELS:
        raise click.BadParameter(f"{zap_level!r} is not a level; write debug, info, warn, error or a number")
    return level
