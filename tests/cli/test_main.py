"""Arguments, errors and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iegopt.cli import main as main_module
from iegopt.cli import models, output
from iegopt.errors import InternalError

Run = Callable[..., Any]
COMMANDS = (
    "plan",
    "replan",
    "queue",
    "explain",
    "solve",
    "verify",
    "compile",
    "generate",
    "schema",
    "models",
    "instances",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(iegopt: Run, command: str) -> None:
    ran = iegopt(command, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"usage: iegopt {command}")
    assert command in iegopt("--help").out


def test_version(iegopt: Run) -> None:
    assert iegopt("--version").out.startswith("iegopt 0.")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ((), "the following arguments are required: COMMAND (see iegopt --help)"),
        (("frob",), "invalid choice: 'frob'"),
        (("plan", "chat"), "required: --cluster (see iegopt plan --help)"),
        (("plan", "chat", "--cluster", "dgx-h100", "--frob"), "unrecognized arguments: --frob"),
        (
            ("plan", "chat", "--cluster", "dgx-h100", "--deadline-ms", "0"),
            "--deadline-ms: 0: expected a finite number above 0",
        ),
        (("solve", "x.json", "--time-limit", "nan"), "--time-limit: nan: expected a finite number above 0"),
        (("solve", "x.json", "--time-limit", "inf"), "--time-limit: inf: expected a finite number above 0"),
        (("solve", "x.json", "--threads", "0"), "--threads: 0: expected a whole number, at least 1"),
        (
            ("solve", "x.json", "--seed", "1099511627776"),
            "--seed: 1099511627776: expected a whole number from 0 to 2147483647",
        ),
        (("solve", "x.json", "--seed", "1.5"), "--seed: 1.5: expected a whole number, at least 0"),
        (("plan", "chat", "--cluster", "dgx-h100", "--quiet", "--explain"), "not allowed with argument"),
        (("models",), "required: ACTION"),
        (("models", "list", "gpu"), "invalid choice: 'gpu'"),
    ],
)
def test_a_bad_argument_is_one_line_and_exit_1(iegopt: Run, argv: tuple[str, ...], says: str) -> None:
    ran = iegopt(*argv)
    assert ran.code == 1
    assert ran.out == ""
    assert ran.error_line.startswith("iegopt: ")
    assert says in ran.error_line


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            ("plan", "chatt", "--cluster", "dgx-h100"),
            "chatt: no such file, and no shipped request has this name. Maybe chat?",
        ),
        (("plan", "chat", "--cluster", "dgx-h1000"), "no shipped cluster has this name. Maybe dgx-h100?"),
        (("plan", "chat", "--cluster", "qqqq"), "iegopt instances lists what is shipped"),
        (("plan", "no/such.yaml", "--cluster", "dgx-h100"), "no/such.yaml: cannot be read: No such file or directory"),
        (("plan", "x" * 5000, "--cluster", "dgx-h100"), "File name too long"),
        (("plan", "chat", "--cluster", "."), "Is a directory"),
        (("plan", "chat", "--cluster", "dgx-h100", "--solver", "magic"), "no solver 'magic'"),
        (("solve", "missing.json"), "missing.json: cannot be read"),
        (("replan", "afternon", "--cluster", "mixed-racks"), "no shipped snapshot has this name. Maybe afternoon?"),
        (
            ("replan", "afternoon", "--cluster", "mixed-racks", "--policy", "quotas"),
            "no shipped policy has this name",
        ),
        (("replan", "afternoon", "--cluster", "dgx-h100"), "no device of cluster dgx-h100 is called h100-0"),
        (("schema", "requst"), "no document is called requst. Maybe request?"),
        (("models", "show", "H1000"), "no card is called H1000. Maybe H100?"),
    ],
)
def test_a_bad_file_or_name_is_one_line_and_exit_1(iegopt: Run, argv: tuple[str, ...], says: str) -> None:
    ran = iegopt(*argv)
    assert ran.code == 1
    assert ran.out == ""
    assert says in ran.error_line


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("missing/folder/out", "there is no folder"),
        (".", "it is a folder, expected a file name"),
        ("file/out", "there is no folder file"),
    ],
)
@pytest.mark.parametrize("command", ["compile", "generate", "html"])
def test_a_bad_output_path_is_told_before_any_work(
    iegopt: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, path: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("a file, no folder")
    argv = {
        "compile": ("compile", "no-such-request", "--cluster", "dgx-h100", "-o", path),
        "generate": ("generate", "--family", "chain", "--stages", 3, "--sites", 4, "-o", path),
        "html": ("plan", "no-such-request", "--cluster", "dgx-h100", "--html", path),
    }[command]
    ran = iegopt(*argv)
    assert ran.code == 1
    assert says in ran.error_line


def test_a_bug_is_one_line_and_exit_70(iegopt: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(models, "_list", broken)
    ran = iegopt("models", "list")
    assert ran.code == 70
    assert ran.error_line.endswith("RuntimeError: first line second line")
    assert "please report it" in ran.error_line
    monkeypatch.setenv("IEGOPT_DEBUG", "1")
    assert main_module.main(["models", "list"]) == 70


def test_the_traceback_is_one_variable_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> int:
        raise InternalError("an answer that the verifier refused")

    monkeypatch.setattr(models, "_list", broken)
    monkeypatch.setenv("IEGOPT_DEBUG", "1")
    assert main_module.main(["models", "list"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_interrupted_is_130(iegopt: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "_list", interrupted)
    ran = iegopt("models", "list")
    assert (ran.code, ran.error_line) == (130, "iegopt: interrupted")


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "iegopt", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141
    process.stderr.close()


def test_start_up_imports_nothing_heavy() -> None:
    script = (
        "import sys; from iegopt.cli.main import main; main(['--help'])\n"
        "print(sorted({'numpy', 'pydantic', 'rich', 'ortools', 'yaml', 'networkx', 'pulp'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"


def test_a_terminal_without_our_letters(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    argv = [sys.executable, "-m", "iegopt", "plan", "chat", "--cluster", "dgx-h100"]
    ran = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.isascii()


def test_nothing_is_infinite_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"gap": float("inf"), "list": [float("nan"), 1.5]})
    assert capsys.readouterr().out == '{\n  "gap": null,\n  "list": [\n    null,\n    1.5\n  ]\n}\n'
