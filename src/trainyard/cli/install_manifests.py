"""`trainyard manifests`: print the objects that a cluster needs for the operator, for `kubectl apply -f -`. Offline."""

from __future__ import annotations

import click

from trainyard import kinds
from trainyard.app.install import installation, operator_rbac
from trainyard.cli.output.printing import as_yaml
from trainyard.core import Kind
from trainyard.core.names import is_dns_label
from trainyard.objects import Json


class KindsType(click.ParamType[tuple[Kind, ...]]):
    """Kinds of jobs by name, in any case, separated by commas; or `all`."""

    name = "kinds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Kind, ...]:
        """From `tfjob,mxjob`. Fails with a usage error for an unknown kind."""
        if isinstance(value, tuple):
            return value
        names = [name.strip() for name in str(value).split(",") if name.strip()]
        if [name.lower() for name in names] == ["all"]:
            return kinds.KINDS
        named: set[str] = set()
        for name in names:
            kind = kinds.kind_named(name)
            if kind is None:
                known_names = ", ".join(kind.gvk.kind for kind in kinds.KINDS)
                self.fail(f"{name!r} is not a kind of job; write some of {known_names}, or all", param, ctx)
            named.add(kind.gvk.kind)
        if not names:
            self.fail("names no kind; leave the option out for those that need nothing sensitive", param, ctx)
        return tuple(kind for kind in kinds.KINDS if kind.gvk.kind in named)


def _check_namespace(ctx: click.Context, param: click.Parameter, value: str) -> str:
    if not is_dns_label(value):
        text = f"{value!r} is not a legal namespace: write lower case letters, digits and '-', at most 63"
        raise click.BadParameter(text, ctx, param)
    return value


def to_yaml(objects: list[Json]) -> str:
    """Objects as YAML, one document each."""
    return "".join(f"---\n{as_yaml(obj).rstrip()}\n" for obj in objects)


@click.command()
@click.option(
    "--namespace",
    "-n",
    metavar="NAMESPACE",
    default="trainyard",
    show_default=True,
    callback=_check_namespace,
    help="Namespace of the operator.",
)
@click.option(
    "--kinds",
    "chosen",
    type=KindsType(),
    default=operator_rbac.DEFAULT,
    show_default=",".join(kind.gvk.kind for kind in operator_rbac.DEFAULT),
    metavar="KIND,...",
    help="Kinds of jobs to install, or all; ChainerJob needs permissions for pods/exec and roles.",
)
@click.option("--namespaced", is_flag=True, help="Watch only that namespace, with Roles instead of ClusterRoles.")
@click.option(
    "--image", metavar="IMAGE", default=installation.IMAGE, show_default=True, help="Container image of the operator."
)
@click.option(
    "--replicas",
    type=click.IntRange(min=0),
    metavar="N",
    default=1,
    show_default=True,
    help="Number of replicas of the operator.",
)
@click.option(
    "--part",
    type=click.Choice(("all", "definitions", "operator", "runtimes")),
    default="all",
    show_default=True,
    help="Objects to print: definitions (CRDs, roles of users, namespace), operator (the rest), or all of these; "
    "runtimes: the runtimes of TrainJobs, for after the definitions. A deleted CRD deletes its jobs.",
)
@click.option(
    "--cloud",
    type=click.Choice(list(installation.CLOUDS)),
    help="Cloud whose GPU volumes and variables are added to the config.",
)
def manifests(
    namespace: str,
    chosen: tuple[Kind, ...],
    namespaced: bool,
    image: str,
    replicas: int,
    part: str,
    cloud: str | None,
) -> None:
    """Print the manifests that install the operator: CRDs, namespace, RBAC, config, Deployment.

    \b
    trainyard manifests | kubectl apply -f -
    trainyard manifests --namespace team-a --namespaced | kubectl apply -f -
    trainyard manifests --kinds all | kubectl apply -f -
    trainyard manifests --part operator | kubectl delete -f -     # jobs stay
    """
    install = installation.Install(
        namespace=namespace,
        kinds=chosen,
        namespaced=namespaced,
        image=image,
        replicas=replicas,
        config=installation.config_of(cloud) if cloud else installation.CONFIG,
    )
    parts = {
        "all": installation.objects,
        "definitions": installation.lasting_objects,
        "operator": installation.operator_objects,
        "runtimes": installation.shipped_objects,
    }
    objects = parts[part](install)
    if not objects:
        raise click.UsageError("none of these kinds has runtimes: add --kinds TrainJob")
    click.echo(to_yaml(objects), nl=False)
