"""Stories that run on the embedded cluster alone, each with the reason. All others run on both clusters.

A name is a file, a test or a class in it, or a case of a test. test_back_ends.py fails for a name that does not exist.
"""

from __future__ import annotations

DEADLINE = "a ChainerJob's deadline is enforced by kube-controller-manager, with its own clock: see test_real_clock.py"
REASONS: dict[str, str] = {
    "test_chainerjob_story.py::test_the_masters_own_deadline_wins": DEADLINE,
    "test_every_kind.py::test_a_deadline_stops_all_replicas_under_every_clean_pod_policy[ChainerJob]": DEADLINE,
    "test_every_kind.py::test_a_deadline_stops_all_replicas_under_every_clean_pod_policy[ChainerJob-alone]": DEADLINE,
    "test_operator_rbac_story.py": "tests/manifests/test_operator_rbac_on_a_real_cluster.py reads its audit log",
    "test_older_server.py": "tests/control_plane stores invalid objects on a real server",
    "test_refusals.py::TestAnOlderServer": "as in test_older_server.py",
}


def case(node: str) -> str:
    """The name of a test, as pytest has it, without its folder and its back end."""
    name = node.rpartition("/")[2]
    return name.replace("[embedded]", "").replace("[real]", "").replace("[embedded-", "[").replace("[real-", "[")


def names(node: str) -> list[str]:
    """The names of this test that the table may use, the widest first."""
    whole = case(node)
    parts = whole.partition("[")[0].split("::")
    return [*("::".join(parts[:end]) for end in range(1, len(parts) + 1)), whole]


def reason(node: str) -> str:
    """Why this test runs on the embedded cluster alone; empty when it runs on both."""
    return next((REASONS[name] for name in names(node) if name in REASONS), "")
