"""The decision: given a job and the children we see, what is true and what should be written.

Rules for this room:
- Pure. `now` is an argument. No asyncio, logging, time, random, os, files or network; `make lint` proves it.
- Frozen values in, frozen values out. A user's mistake is a value, never an exception.
- Nothing here names a framework or a kind of job; kinds are values (`kinds/`), and so are carriers.
"""

from trainyard.core.carriers import JOB_CARRIER, POD_CARRIER, RETRYING_JOB_CARRIER, SET_CARRIER
from trainyard.core.children import child_of
from trainyard.core.decide import decide, plan
from trainyard.core.job import Carrier, Extra, Job, Kind, Policy, Replica, Role, Said, Speech, Verdict, Wanted
from trainyard.core.model import Child, Config, Create, Delete, Event, Patch, Plan, Ref, Refusal, Seen, Slot
from trainyard.core.read import read, read_with, runtime_id_of
from trainyard.core.render import render, render_for
from trainyard.core.rules import Rule, broken, spelled
from trainyard.core.status import event_of

__all__ = [
    "JOB_CARRIER",
    "POD_CARRIER",
    "RETRYING_JOB_CARRIER",
    "SET_CARRIER",
    "Carrier",
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
    "Replica",
    "Role",
    "Rule",
    "Said",
    "Seen",
    "Slot",
    "Speech",
    "Verdict",
    "Wanted",
    "broken",
    "child_of",
    "decide",
    "event_of",
    "plan",
    "read",
    "read_with",
    "render",
    "render_for",
    "runtime_id_of",
    "spelled",
]
