"""Every malformed document, given to the command that reads it: one line, exit 1, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_a_malformed_request_or_cluster_is_one_line(iegopt: Run, malformed_case: Any) -> None:
    files = {"request": "chat", "cluster": "dgx-h100"}
    files["cluster" if malformed_case.key == "cluster" else "request"] = str(malformed_case.path)
    ran = iegopt("plan", files["request"], "--cluster", files["cluster"])
    assert ran.code == 1
    assert ran.out == ""
    assert ran.error_line.startswith("iegopt: ")
    if malformed_case.key in files:
        assert malformed_case.expected in ran.error_line


def test_a_malformed_snapshot_or_policy_is_one_line(iegopt: Run, malformed_case: Any) -> None:
    files = {"snapshot": "afternoon", "cluster": "mixed-racks", "batch_policy": "afternoon"}
    files[malformed_case.key if malformed_case.key in files else "snapshot"] = str(malformed_case.path)
    ran = iegopt("replan", files["snapshot"], "--cluster", files["cluster"], "--policy", files["batch_policy"])
    assert ran.code == 1
    assert ran.out == ""
    assert ran.error_line.startswith("iegopt: ")
    if malformed_case.key in files:
        assert malformed_case.expected in ran.error_line
