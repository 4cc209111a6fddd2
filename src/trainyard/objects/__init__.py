"""The parts of every Kubernetes object: names, keys, owners, labels, conditions, times, JSON, YAML.

Rules for this package:
- No module here depends on a kind of job, on a server or on a node.
- API objects are plain dicts, as the JSON decoder returns them. The functions here read them tolerantly: a missing or
  malformed field counts as absent and raises nothing. Only `manifest` raises, because it reads files of users.
"""

from trainyard.objects.codec import decode, encode
from trainyard.objects.conditions import find_condition, is_condition_true, set_condition
from trainyard.objects.meta import (
    GVK,
    Json,
    NamespacedName,
    Ref,
    annotations_of,
    as_dict,
    controller_of,
    controller_reference,
    is_deleting,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    operator_status,
    pod_containers,
    resource_version_of,
    templates_of,
    uid_of,
)
from trainyard.objects.problems import Problem
from trainyard.objects.times import exponential_delay, format_time, parse_time

__all__ = [
    "GVK",
    "Json",
    "NamespacedName",
    "Problem",
    "Ref",
    "annotations_of",
    "as_dict",
    "controller_of",
    "controller_reference",
    "decode",
    "encode",
    "exponential_delay",
    "find_condition",
    "format_time",
    "is_condition_true",
    "is_deleting",
    "key_of",
    "labels_of",
    "name_of",
    "namespace_of",
    "operator_status",
    "parse_time",
    "pod_containers",
    "resource_version_of",
    "set_condition",
    "templates_of",
    "uid_of",
]
