"""What the server refused of a job, after the job was edited: what was wrong was made from another spec."""

from __future__ import annotations

from trainyard.core import Ref, Refusal
from trainyard.core.policy import write_due_at
from trainyard.operator.plan_executor import JobState

NOW = 1_700_000_000.0
INVALID, QUOTA = Ref("Pod", "worker-1"), Ref("Pod", "worker-2")


def remembered() -> JobState:
    memory = JobState()
    memory.observe_generation(1)
    memory.refused[INVALID] = Refusal(422, "Invalid", "image: Required value", NOW, 6)
    memory.refused[QUOTA] = Refusal(403, "Forbidden", "exceeded quota", NOW, 6)
    return memory


def test_as_long_as_the_spec_is_the_same_refusals_stand_and_wait() -> None:
    memory = remembered()
    memory.observe_generation(1)
    assert set(memory.refused) == {INVALID, QUOTA}
    assert write_due_at(memory.refused[QUOTA], "create", NOW) == NOW + 300


def test_after_an_edit_what_was_wrong_is_forgotten_and_the_rest_is_tried_now() -> None:
    memory = remembered()
    memory.observe_generation(2)
    assert set(memory.refused) == {QUOTA} and memory.refused[QUOTA].message == "exceeded quota"
    assert write_due_at(memory.refused[QUOTA], "create", NOW) <= NOW
