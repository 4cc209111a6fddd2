"""The RuntimeIds in use, by namespace."""

from __future__ import annotations

from trainyard.operator.runtime_ids import RuntimeIds


def test_an_id_is_in_use_until_its_last_job_is_gone() -> None:
    ids = RuntimeIds()
    for uid in ("u1", "u2"):
        ids.set("ml", uid, "abcd")
    ids.set("other", "u3", "wxyz")
    ids.set("ml", "u1", "")
    assert set(ids.in_use("ml")) == {"abcd"}
    ids.set("ml", "u2", "")
    assert not ids.in_use("ml")
    assert set(ids.in_use("other")) == {"wxyz"}


def test_another_id_takes_the_place_of_the_old_one() -> None:
    ids = RuntimeIds()
    ids.set("ml", "u1", "abcd")
    ids.set("ml", "u1", "efgh")
    assert set(ids.in_use("ml")) == {"efgh"}
    ids.set("ml", "unknown", "")
    assert set(ids.in_use("ml")) == {"efgh"}
