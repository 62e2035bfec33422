"""The tool role: what it answers, and that a bad tool costs nobody but the one who called it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from iegopt.errors import SpecError
from iegopt_runtime.processes import RUN_VARIABLE, end_run, of_run
from iegopt_runtime.workers.executor import StageFailed
from iegopt_runtime.workers.tool import ToolExecutor
from iegopt_runtime.workers.tool_check import check_tools
from iegopt_runtime.workers.tool_registry import read_tools


class _Attempt:
    request_id, stage, number = "r", "tool-1", 1

    def progress(self, offset: int, tokens: list[int], text: str) -> None: ...

    def waiting(self, resource: str) -> None: ...

    def resumed(self) -> None: ...


def python(name: str, **more: Any) -> dict[str, Any]:
    return {"python": f"tools_of_tests:{name}", **more}


TOOLS = {
    **{
        name: python(name)
        for name in ("add", "echo", "later", "fail", "leave", "crash", "binary", "strange", "counted")
    },
    "hang": python("hang", timeout="300ms"),
    "flood": python("flood", output="1kB"),
    "second_time": python("second_time", retries=1),
    "keyed": python("keyed", retries=1),
    "positional": python("positional"),
    "keyed_command": {
        "command": [
            "sh",
            "-c",
            'echo $IEGOPT_IDEMPOTENCY_KEY | tee -a "$1"; test $(wc -l <"$1") -ge 2',
            "sh",
            "{file}",
        ],
        "retries": 1,
    },
    "missing": {"python": "tools_of_tests:nothing_here"},
    "words": {"command": ["printf", "%s|", "{text}"]},
    "cat": {"command": ["cat"]},
    "sleep": {"command": ["sh", "-c", "sleep 60 & wait"], "timeout": "300ms"},
    "left_behind": {"command": ["sh", "-c", "echo done; sleep 60 &"], "timeout": "20s", "retries": 3},
    "fails_behind": {"command": ["sh", "-c", "sleep 60 & echo no >&2; exit 3"], "timeout": "20s"},
    "daemon": {"command": ["sh", "-c", "echo done; setsid sleep 3 &"], "timeout": "20s"},
    "yes": {"command": ["yes"], "output": "10kB"},
    "bytes": {"command": ["printf", r"\377\376"]},
    "false": {"command": ["sh", "-c", "echo out of paper >&2; exit 4"]},
    "nowhere": {"command": ["no-such-command-here"]},
}


@pytest.fixture(autouse=True)
def _own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setenv(RUN_VARIABLE, f"test-{os.getpid()}")


def run(*calls: dict[str, Any]) -> list[Any]:
    """Results of calls made at once, exceptions as values; nothing may be left running."""

    async def all_of_them() -> list[Any]:
        executor = ToolExecutor(read_tools(TOOLS))
        try:
            work: list[Coroutine[Any, Any, Any]] = [executor.run("tool", call, _Attempt()) for call in calls]
            return await asyncio.gather(*work, return_exceptions=True)
        finally:
            await executor.close()

    results = asyncio.run(all_of_them())
    assert of_run(f"test-{os.getpid()}") == []
    return results


def call(name: str, key: str | None = None, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "key": key}


@pytest.mark.parametrize(
    ("asked", "content"),
    [
        (call("add", a=2, b=3), "5"),
        (call("echo", text="grün"), "grün"),
        (call("later", text="x"), "x"),
        (call("words", text="two words; $HOME"), "two words; $HOME|"),
        (call("cat", a=1), '{"a": 1}'),
    ],
)
def test_a_call_is_answered(asked: dict[str, Any], content: str) -> None:
    (result,) = run(asked)
    assert result == {"content": content, "truncated": False, "cached": False, "tries": 1}


def test_a_command_is_over_when_its_own_process_is_whatever_it_left_behind() -> None:
    began = time.monotonic()
    left, failed = run(call("left_behind"), call("fails_behind"))
    assert time.monotonic() - began < 10
    assert left == {"content": "done\n", "truncated": False, "cached": False, "tries": 1}
    assert (failed.cause, "ended with code 3: no" in str(failed)) == ("error", True)


def test_a_command_is_over_though_a_daemon_holds_its_pipes() -> None:
    async def timed() -> tuple[Any, float]:
        executor, began = ToolExecutor(read_tools(TOOLS)), time.monotonic()
        try:
            return await executor.run("tool", call("daemon"), _Attempt()), time.monotonic() - began
        finally:
            await executor.close()
            end_run(f"test-{os.getpid()}")

    result, took = asyncio.run(timed())
    assert (result["content"], result["tries"]) == ("done\n", 1)
    assert took < 2.5


@pytest.mark.parametrize(
    ("asked", "cause", "words"),
    [
        (call("fail", message="no such city"), "error", "raised ValueError: no such city"),
        (call("add", a=1), "error", "missing 1 required positional argument: 'b'"),
        (call("leave"), "error", "raised SystemExit: 3"),
        (call("crash"), "error", "ended its process"),
        (call("binary"), "error", "256 bytes that are no text"),
        (call("strange"), "error", "returned an object that is neither text nor JSON"),
        (call("hang"), "timeout", "did not answer within 0.3 s"),
        (call("sleep"), "timeout", "did not answer within 0.3 s"),
        (call("bytes"), "error", "2 bytes that are no text"),
        (call("false"), "error", "ended with code 4: out of paper"),
        (call("nowhere"), "refused", "no-such-command-here cannot be started"),
        (call("missing"), "refused", "cannot be loaded from tools_of_tests:nothing_here"),
        (call("words"), "refused", "argument text is missing"),
        (call("unknown"), "refused", "no tool is called 'unknown': registered here are add, binary"),
    ],
)
def test_a_bad_tool_is_told_and_others_are_answered(asked: dict[str, Any], cause: str, words: str) -> None:
    failure, good = run(asked, call("add", a=1, b=1))
    assert isinstance(failure, StageFailed)
    assert failure.cause == cause
    assert words in str(failure)
    assert good["content"] == "2"


@pytest.mark.parametrize(("asked", "size"), [(call("flood", size=1000), 1000), (call("yes"), 10_000)])
def test_a_flood_is_cut_off_at_the_limit(asked: dict[str, Any], size: int) -> None:
    begun = time.monotonic()
    (result,) = run(asked)
    assert result["truncated"]
    assert len(result["content"].encode()) == size
    assert time.monotonic() - begun < 30


def test_a_transient_failure_is_tried_again(tmp_path: Path) -> None:
    (result,) = run(call("second_time", file=str(tmp_path / "n")))
    assert (result["content"], result["tries"]) == ("now it is", 2)


def test_one_key_is_called_once_even_at_once(tmp_path: Path) -> None:
    file = str(tmp_path / "n")
    first, second = run(call("counted", "k", file=file), call("counted", "k", file=file))
    assert [first["content"], second["content"]] == ["1", "1"]
    assert sorted([first["cached"], second["cached"]]) == [False, True]
    (other,) = run(call("counted", "other", file=file))
    assert other["content"] == "2"


def test_a_call_that_failed_is_made_again_and_one_that_did_not_as_long_as_it_is_kept(tmp_path: Path) -> None:
    now, file = [0.0], str(tmp_path / "n")
    tools = {"counted": python("counted", keep="10s"), "second_time": python("second_time", keep="10s")}

    async def calls() -> list[Any]:
        executor = ToolExecutor(read_tools(tools), lambda: now[0])
        said: list[Any] = []
        try:
            for now[0], asked in (
                (0.0, call("second_time", "s", file=str(tmp_path / "m"))),
                (0.0, call("second_time", "s", file=str(tmp_path / "m"))),
                (0.0, call("counted", "c", file=file)),
                (9.0, call("counted", "c", file=file)),
                (11.0, call("counted", "c", file=file)),
            ):
                try:
                    said.append((await executor.run("tool", asked, _Attempt()))["content"])
                except StageFailed as error:
                    said.append(error.cause)
        finally:
            await executor.close()
        return said

    assert asyncio.run(calls()) == ["error", "now it is", "1", "1", "2"]


def test_every_try_has_its_time_and_the_caller_may_give_less() -> None:
    tools = {"hang": python("hang", timeout="60s", retries=2)}

    async def called() -> str:
        executor = ToolExecutor(read_tools(tools))
        try:
            with pytest.raises(StageFailed) as caught:
                await executor.run("tool", call("hang") | {"timeout": 0.2}, _Attempt())
            return str(caught.value)
        finally:
            await executor.close()

    begun = time.monotonic()
    assert "did not answer within 0.2 s (3 tries); it was called with {}" in asyncio.run(called())
    assert 0.6 <= time.monotonic() - begun < 30


def test_a_key_with_other_arguments_is_another_call(tmp_path: Path) -> None:
    """The id of a request that is over may be used again."""
    files = [str(tmp_path / name) for name in "ab"]
    first, second = run(call("counted", "k", file=files[0]), call("counted", "k", file=files[1]))
    assert [first["cached"], second["cached"]] == [False, False]
    assert all(Path(file).exists() for file in files)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "expected exactly one of python and command"),
        ({"python": "no colon"}, "python"),
        ({"command": []}, "command"),
        ({"python": "a:b", "timeout": "0s"}, "timeout 0s: expected more"),
        ({"python": "a:b", "tiemout": "1s"}, "timeout"),
    ],
)
def test_a_bad_entry_is_refused_where_it_stands(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=r"tools\.search") as caught:
        read_tools({"search": entry})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "where", "words"),
    [
        (python("add"), None, ""),
        ({"command": ["{program}", "x"]}, None, ""),
        (python("nothing_here"), "python", "tools_of_tests:nothing_here: AttributeError.*expected a callable"),
        ({"python": "no.such.module:x"}, "python", "ModuleNotFoundError: No module named 'no'"),
        ({"python": "broken_module:x"}, "python", "broken_module:x: ValueError: not today"),
        ({"python": "leaving_module:x"}, "python", "SystemExit: 3"),
        ({"python": "dying_module:x"}, "python", r"its import ended the process \(code 7\)"),
        ({"python": "hanging_module:x"}, "python", "its import took longer than 1 s"),
        ({"python": "tools_of_tests:Path"}, None, ""),
        ({"python": "tools_of_tests:__name__"}, "python", "a str: expected a callable"),
        ({"command": ["no-such-command-here"]}, r"command\.0", "no-such-command-here: expected a command"),
    ],
)
def test_a_tool_that_no_call_could_reach_is_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], where: str | None, words: str
) -> None:
    ends = {"broken": "raise ValueError('not today')", "leaving": "raise SystemExit(3)",
            "dying": "import os; os._exit(7)", "hanging": "import time; time.sleep(60)"}  # fmt: skip
    for name, line in ends.items():
        (tmp_path / f"{name}_module.py").write_text(f"print('noise')\n{line}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    tools = read_tools({"good": python("echo"), "search": entry})
    if where is None:
        check_tools(tools, "t.yaml")
    else:
        with pytest.raises(SpecError, match=rf"^t\.yaml: tools\.search\.{where}: .*{words}"):
            check_tools(tools, "t.yaml", importing=1.0 if "hanging" in str(entry) else 60.0)
    assert of_run(f"test-{os.getpid()}") == []


def test_a_run_is_ended_with_all_that_it_started() -> None:
    name = f"test-{os.getpid()}"

    async def started_and_ended() -> None:
        shell = await asyncio.create_subprocess_exec("sh", "-c", "sleep 60 & sleep 60", start_new_session=True)
        async with asyncio.timeout(20):
            while len(of_run(name)) < 3:
                await asyncio.sleep(0.01)
            assert len(set(end_run(name))) >= 3
            await shell.wait()
            while of_run(name):
                await asyncio.sleep(0.01)

    asyncio.run(started_and_ended())


def test_a_tool_is_told_which_call_it_is_the_same_in_every_try_and_after_its_worker_died(tmp_path: Path) -> None:
    for name in ("keyed", "keyed_command"):
        file = tmp_path / name
        (told,) = run(call(name, "r/tool-1", file=str(file)))
        assert told["tries"] == 2
        keys = file.read_text().split()
        assert keys == 2 * [told["content"].split()[-1]]
        assert re.fullmatch("[0-9a-f]{32}", keys[0])
        run(call(name, "r/tool-1", file=str(file)))  # another process of the worker, which remembers nothing
        assert file.read_text().split() == 3 * keys[:1]
        run(call(name, "r/tool-2", file=str(file)))
        assert file.read_text().split()[-1] not in keys


def test_a_tool_without_a_parameter_for_its_key_is_not_told() -> None:
    positional, without_a_key = run(call("positional", "r/tool-1"), call("add", "r/tool-2", a=1, b=1))
    assert (positional["content"], without_a_key["content"]) == ("none", "2")
