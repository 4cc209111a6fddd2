"""The decision: given a job and the children we see, what is true and what should be written.

Rules for this room:
- Pure. `now` is an argument. No asyncio, logging, time, random, os, files or network; `make lint` proves it.
- Frozen values in, frozen values out. A user's mistake is a value, never an exception.
- Nothing here names a framework or a kind of job; kinds are values (`kinds/`), and so are carriers.
"""

from trainyard.core.carriers import JOB_CARRIER
from trainyard.core.children import child_of
from trainyard.core.decide import decide, plan
from trainyard.core.model import (
    CHILDREN,
    Child,
    Config,
    Create,
    Delete,
    Event,
    Extra,
    Job,
    Kind,
    Patch,
    Plan,
    Policy,
    Ref,
    Refusal,
    Role,
    Seen,
    Slot,
    Verdict,
    Wanted,
)
from trainyard.core.read import read, read_with, runtime_id_of
from trainyard.core.render import render, render_for
from trainyard.core.rules import Rule, broken, spelled

__all__ = [
    "CHILDREN",
    "JOB_CARRIER",
    "Child",
    "Config",
    "Create",
    "Delete",
    "Event",
    "Extra",
    "Job",
    "Kind",
    "Patch",
    "Plan",
    "Policy",
    "Ref",
    "Refusal",
    "Role",
    "Rule",
    "Seen",
    "Slot",
    "Verdict",
    "Wanted",
    "broken",
    "child_of",
    "decide",
    "plan",
    "read",
    "read_with",
    "render",
    "render_for",
    "runtime_id_of",
    "spelled",
]
