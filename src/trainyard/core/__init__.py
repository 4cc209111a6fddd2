"""The decision: from a job and its observed children to the new status and the writes of one reconcile.

Rules for this package:
- Pure functions. `now` is an argument. No asyncio, logging, time, random, os, files or network; `make lint` checks it.
- Arguments and results are frozen values. An error in a user's spec is a value (`Problem`), never an exception.
- No code here depends on a framework or a kind of job: kinds (`kinds/`) are values, and so are carriers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainyard.core.carriers import JOB_CARRIER, POD_CARRIER, RETRYING_JOB_CARRIER, STATEFUL_SET_CARRIER
from trainyard.core.children import decode_child
from trainyard.core.events import recorded_events, unwarned
from trainyard.core.job_state import Outcome, ParsedSpec, Policy, Replica, Role, RoleFailure
from trainyard.core.kind import (
    Api,
    Job,
    Kind,
    Lifecycle,
    OtherController,
    PodRecipe,
    RoleTable,
    StatusShape,
    TemplateKind,
    TemplateSource,
    WorkloadAdapter,
)
from trainyard.core.long_variables import long_variables
from trainyard.core.model import (
    AuxiliaryObject,
    Child,
    ChildStatus,
    ConditionUpdate,
    Config,
    Event,
    ExitAction,
    MasterWait,
    Observed,
    Plan,
    PlannedCreate,
    Refusal,
    RestartScope,
    Slot,
    TemplateChange,
)
from trainyard.core.read import parse_job, parse_job_with, parse_spec, runtime_id_of, snapshot_of
from trainyard.core.render import render_child, render_object
from trainyard.core.rules import Rule, violations, with_aliases
from trainyard.core.status import default_condition_event

if TYPE_CHECKING:
    from trainyard.core.changes import FEW_CREATES
    from trainyard.core.decide import plan

_DECISION = {"FEW_CREATES": "changes", "plan": "decide"}
"""What is imported when it is used, with a third of this package: -> its module. Most commands only read jobs."""


def __getattr__(name: str) -> Any:
    """A name of _DECISION (PEP 562)."""
    if name in _DECISION:
        return getattr(import_module(f"{__name__}.{_DECISION[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "FEW_CREATES",
    "JOB_CARRIER",
    "POD_CARRIER",
    "RETRYING_JOB_CARRIER",
    "STATEFUL_SET_CARRIER",
    "Api",
    "AuxiliaryObject",
    "Child",
    "ChildStatus",
    "ConditionUpdate",
    "Config",
    "Event",
    "ExitAction",
    "Job",
    "Kind",
    "Lifecycle",
    "MasterWait",
    "Observed",
    "OtherController",
    "Outcome",
    "ParsedSpec",
    "Plan",
    "PlannedCreate",
    "PodRecipe",
    "Policy",
    "Refusal",
    "Replica",
    "RestartScope",
    "Role",
    "RoleFailure",
    "RoleTable",
    "Rule",
    "Slot",
    "StatusShape",
    "TemplateChange",
    "TemplateKind",
    "TemplateSource",
    "WorkloadAdapter",
    "decode_child",
    "default_condition_event",
    "long_variables",
    "parse_job",
    "parse_job_with",
    "parse_spec",
    "plan",
    "recorded_events",
    "render_child",
    "render_object",
    "runtime_id_of",
    "snapshot_of",
    "unwarned",
    "violations",
    "with_aliases",
]
