"""Structural schemas: what a custom resource may look like, as a Kubernetes API server reads it.

The room's one idea: a schema is compiled once into plain functions, and the same functions serve the embedded API
server, `lint` and the operator, so that all three say the same about the same text.

Rules for this room:
- `prune` and `default` never change their input. What they return may share untouched parts with it, so nobody may
  edit the result in place either, other than at its top level.
- `validate` finds every problem, not the first one, and says what to write. It never raises on any JSON value,
  however deep: below `DEPTH` levels nothing is looked at, and that is a Problem of its own.
- A schema is trusted to be finite but not to be right: compiling a wrong one raises ValueError that names the field.
"""

from trainyard.schema.checks import DEPTH
from trainyard.schema.compiled import Schema
from trainyard.schema.structs import from_struct

__all__ = ["DEPTH", "Schema", "from_struct"]
