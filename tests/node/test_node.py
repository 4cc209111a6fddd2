"""Pods on a real node, in both networks."""

from __future__ import annotations

from yards import Yard, terminated


async def test_a_pod_runs_to_its_end_and_its_output_is_its_log(yard: Yard) -> None:
    await yard.pod("hello", "print('hello from the pod')")
    assert await yard.result("hello") == "hello from the pod\n"


async def test_an_exit_code_is_the_containers(yard: Yard) -> None:
    await yard.pod("three", "raise SystemExit(3)")
    seen = await yard.phase("three", "Failed")
    ended = terminated(seen["status"])
    assert ended is not None and (ended["exitCode"], ended["reason"]) == (3, "Error")
