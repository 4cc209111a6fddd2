"""Stories that run on the embedded cluster alone, each with the reason. All others run on both clusters.

A name is a file, a test or a class in it, a case of a test, or a parameter of any test. test_back_ends.py fails for a
name that does not exist.
"""

from __future__ import annotations

DEADLINE = "a ChainerJob's deadline is enforced by kube-controller-manager, with its own clock: see test_real_clock.py"
SAME_CHILDREN = "its Pods and Services are created and watched as those of a PyTorchJob, which runs on both"
REASONS: dict[str, str] = {
    "[XGBoostJob]": SAME_CHILDREN,
    "[PaddleJob]": SAME_CHILDREN,
    "[JAXJob]": SAME_CHILDREN,
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
    test, _, parameters = whole.partition("[")
    parts = test.split("::")
    words = parameters.removesuffix("]").split("-") if parameters else []
    return [*("::".join(parts[:end]) for end in range(1, len(parts) + 1)), whole, *(f"[{word}]" for word in words)]


def reason(node: str) -> str:
    """Why this test runs on the embedded cluster alone; empty when it runs on both."""
    return next((REASONS[name] for name in names(node) if name in REASONS), "")
