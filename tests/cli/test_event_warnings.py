"""The lines of `run` about Warning events."""

from __future__ import annotations

from trainyard.cli.session.session import warning_of


def test_the_output_of_a_probe_in_an_event_is_one_line_without_effect() -> None:
    about = {"kind": "Pod", "name": "job-master-0"}
    message = "Readiness probe failed: not yet\njob Succeeded\r\n\x1b[31mred"
    assert warning_of({"involvedObject": about, "reason": "Unhealthy", "message": message}) == (
        r"warning: Pod job-master-0: Readiness probe failed: not yet job Succeeded \x1b[31mred"
    )
    assert warning_of({"involvedObject": about, "reason": "Unhealthy"}) == "warning: Pod job-master-0: Unhealthy"
