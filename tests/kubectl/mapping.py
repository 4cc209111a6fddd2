"""What two clusters say, made comparable: what differs by nature is named, columns lose their widths."""

from __future__ import annotations

import re

from tests.kubectl.kubectl_clusters import KubectlAnswer, Person

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_PATTERNS = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "<time>"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
    (r"(?<![\w.])(?:\d+d)?(?:\d+h)?(?:\d+m)?\d+[smhd](?![\w])", "<age>"),
    (r"https?://127\.0\.0\.1:\d+", "<server>"),
    (r"(?<![\w.])\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![\w.])", "<address>"),
    (r'(resourceVersion"?: ?)"\d+"', r'\1"<n>"'),
    (r"(Resource Version: +)\d+", r"\1<n>"),
    (rf"-[0-9a-f]{{8,10}}-[{_LETTERS}]{{5}}\b", "-<hash>-<x>"),
    (r"(-|pod-template-hash=|controller-revision-hash=rank-)[0-9a-f]{8,10}\b", r"\1<hash>"),
    (rf"-[{_LETTERS}]{{5}}\b", "-<x>"),
    (r"/tmp/\S+/", "<folder>/"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}", "<time>"),
    (r"[WE]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ", ""),  # what kubectl itself logs
    (r"(Runtime Id: +)\w+", r"\1<id>"),
    (r"(0/1 +<age> +)\w{4}\b", r"\1<id>"),  # the column RuntimeId
    (r"(?m)^Waiting for .*\n", ""),  # of `rollout status`: how long it takes
    # A real API server's repair loop speaks when it saw a Service a moment before the Service's IPAddress.
    (r"(?m)^(?:<age>)? *Warning +ClusterIPNotAllocated .*\n?", ""),
    (r"(?m)^tar: Removing leading .*\n?", ""),  # `cp` ends with the archive, and may not have heard its complaints
    (r"(?s)(DESCRIPTION:\n).*?(?=\nFIELDS:|\Z)", r"\1<our own words>"),
)


def mapped(answer: KubectlAnswer, person: Person) -> str:
    """Output and complaints of a command, as anybody anywhere might have got them."""
    text = answer.output
    for name, placeholder in ((person.namespace, "<namespace>"), (person.node, "<node>")):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", placeholder, text)
    for pattern, placeholder in _PATTERNS:
        text = re.sub(pattern, placeholder, text)
    lines = [line for raw in text.splitlines() if (line := re.sub(r"[ \t]+", " ", raw).strip())]
    if lines[-1:] == ["---- ------ ---- ---- -------"]:  # a table of events without a row that counts
        lines[-3:] = ["Events: <none>"]
    if all(line.startswith("[pod/") for line in lines):  # logs of several containers come side by side
        lines.sort()
    for start, line in enumerate(lines):
        if line == "Events:" or line.startswith("LAST SEEN "):  # two within one second may stand in either order
            lines[start + 1 :] = sorted(lines[start + 1 :])
    return "\n".join(lines)
