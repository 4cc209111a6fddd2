"""`runPolicy` of kubeflow.org/v1, from the policies that the older kinds have directly under `spec`."""

from __future__ import annotations

from trainyard.conversion.fields import Fields
from trainyard.core.kind import TRAINYARD_OPERATOR
from trainyard.kinds.kubeflow_v1.spec import MULTIKUEUE
from trainyard.kinds.policies import Policies
from trainyard.objects import Json

TRAINING_OPERATOR = "kubeflow.org/training-operator"


def take_run_policy(*sources: Fields) -> Json:
    """The policies of all sources; of a policy that several have, that of the first one."""
    policies: Json = {}
    for name in Policies.__struct_fields__:
        if name != "managedBy":
            values = [value for source in sources if (value := source.take(name)) is not None]
            policies |= {name: values[0]} if values else {}
            continue
        holders = [source for source in sources if name in source]
        for holder in holders[1:]:
            holder.take(name)
        if holders and (manager := _manager(holders[0])):
            policies[name] = manager
    return policies


def _manager(source: Fields) -> str:
    manager = source.take("managedBy")
    if manager in (TRAINYARD_OPERATOR, TRAINING_OPERATOR):
        return TRAINING_OPERATOR  # the Training Operator accepts no other name for the controller in its place
    if manager not in ("", MULTIKUEUE):
        source.report_unmapped(
            "managedBy",
            f"{manager} manages no job of kubeflow.org/v1: leave it out, or write {TRAINING_OPERATOR} or {MULTIKUEUE}",
        )
        return ""
    return str(manager)


def with_run_policy(spec: Json, policies: Json) -> Json:
    """The spec with `runPolicy` first, if there are policies."""
    return {"runPolicy": policies, **spec} if policies else spec
