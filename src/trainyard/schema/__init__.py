"""Structural schemas of custom resources: pruning, defaulting and validation, as in a Kubernetes API server.

A schema is compiled once into plain functions. The embedded API server, `lint` and the operator call the same
functions, so all three report the same problems for the same object.

Rules for this package:
- `prune` and `default` never change their input. Their result may share unchanged parts with it, so callers must not
  edit the result in place either, other than at its top level.
- `validate` returns every problem, not only the first, each with what to write. It raises on no JSON value, however
  deep: an object nested deeper than `MAX_DEPTH` levels is not validated, and that is a Problem of its own.
- A schema must be finite, but may be invalid: compiling an invalid one raises ValueError that names the field.
"""

from trainyard.schema.checks import MAX_DEPTH
from trainyard.schema.compiled import Schema
from trainyard.schema.structs import from_struct, read_ahead

__all__ = ["MAX_DEPTH", "Schema", "from_struct", "read_ahead"]
