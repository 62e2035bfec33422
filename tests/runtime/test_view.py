"""What ``iegopt run`` prints at the end."""

from __future__ import annotations

from typing import Any

import pytest

from iegopt.cli.output import show
from iegopt_runtime.view import account


def stage(device: str, planned: float, ran: float, **more: Any) -> dict[str, Any]:
    return {
        "device": device, "planned": planned, "ran": ran, "moved": 0, "computed": None, "reused": None, "attempts": 1,
        "state": "COMPLETED",
    } | more  # fmt: skip


def test_the_account_of_a_run_fits_a_terminal_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = {
        "status": "partial", "reason": "120 s are over", "text": "Paris", "recoveries": [], "seconds": 2.5,
        "usage": {"generated": 8, "prefilled": 43, "reused": 0, "tool_calls": 0, "plans": 1},
        "stages": {
            "tokenize": stage("host", 125e-6, 17.3e-3),
            "prefill": stage("prefiller", 67.3e-3, 514e-3, moved=1_940_000, computed=42, reused=1_024),
            "decode": stage("decoder", 1.35, 1.53, computed=1, reused=1_066, state="TERMINAL"),
        },
    }  # fmt: skip
    show(*account(answer))
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 and "…" not in line for line in lines)
    rows = {line.split()[0]: line.split() for line in lines if line}
    assert rows["tokenize"] == ["tokenize", "host", "125", "µs", "17.3", "ms", "138", "×", "1"]
    assert rows["prefill"][6:] == ["7.6", "×", "1.94", "MB", "42", "+", "1,024", "1"]
    assert rows["decode"][-1] == "TERMINAL"
