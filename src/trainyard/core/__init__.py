"""The decision: given a job and the children we see, what is true and what should be written.

Rules for this room:
- Pure. `now` is an argument. No asyncio, logging, time, random, os, files or network; `make lint` proves it.
- Frozen values in, frozen values out. A user's mistake is a value, never an exception.
- Nothing here names a framework or a kind of job; kinds are values (`kinds/`), and so are carriers.
"""

from trainyard.core.carriers import JOB_CARRIER, POD_CARRIER, RETRYING_JOB_CARRIER, SET_CARRIER
from trainyard.core.children import child_of
from trainyard.core.decide import decide, plan
from trainyard.core.job import (
    AuxiliaryObject,
    Carrier,
    ConditionUpdate,
    Job,
    Kind,
    Messages,
    Outcome,
    ParsedSpec,
    Policy,
    Replica,
    Role,
)
from trainyard.core.model import Child, Config, Create, Delete, Event, Observed, Patch, Plan, Ref, Refusal, Slot
from trainyard.core.read import parse_job, parse_job_with, runtime_id_of
from trainyard.core.render import render_child, render_object
from trainyard.core.rules import Rule, violations, with_aliases
from trainyard.core.status import default_condition_event

__all__ = [
    "JOB_CARRIER",
    "POD_CARRIER",
    "RETRYING_JOB_CARRIER",
    "SET_CARRIER",
    "AuxiliaryObject",
    "Carrier",
    "Child",
    "ConditionUpdate",
    "Config",
    "Create",
    "Delete",
    "Event",
    "Job",
    "Kind",
    "Messages",
    "Observed",
    "Outcome",
    "ParsedSpec",
    "Patch",
    "Plan",
    "Policy",
    "Ref",
    "Refusal",
    "Replica",
    "Role",
    "Rule",
    "Slot",
    "child_of",
    "decide",
    "default_condition_event",
    "parse_job",
    "parse_job_with",
    "plan",
    "render_child",
    "render_object",
    "runtime_id_of",
    "violations",
    "with_aliases",
]
