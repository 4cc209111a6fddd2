"""Words of the Kubernetes API: names, keys, owners, labels, conditions, times, JSON, YAML.

Rules for this room:
- Nothing here knows a kind of job, a server or a node.
- Wire objects are plain dicts, as JSON gives them. What we read from them, we read tolerantly: a missing or
  malformed field is "absent", never an exception. Only `manifest` complains, because it reads a person's file.
"""

from trainyard.objects.codec import decode, encode
from trainyard.objects.conditions import condition, is_true, with_condition
from trainyard.objects.meta import (
    GVK,
    Json,
    Key,
    controller_of,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    owner_reference,
    revision_of,
    uid_of,
)
from trainyard.objects.problems import Problem
from trainyard.objects.times import format_time, parse_time

__all__ = [
    "GVK",
    "Json",
    "Key",
    "Problem",
    "condition",
    "controller_of",
    "decode",
    "encode",
    "format_time",
    "is_true",
    "key_of",
    "labels_of",
    "name_of",
    "namespace_of",
    "owner_reference",
    "parse_time",
    "revision_of",
    "uid_of",
    "with_condition",
]
