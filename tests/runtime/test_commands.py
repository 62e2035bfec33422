"""``iegopt run``, ``worker`` and ``controller`` as a user starts them, and what they say to bad input."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from iegopt.cli.main import main
from iegopt.spec.load import dump
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, Listener
from iegopt_runtime.supervise import Supervisor
from tests.runtime.local import local_cluster, tiny_request

ROOT = Path(__file__).resolve().parents[2]
SECRET = "ab" * 32


def iegopt(*arguments: object, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "runtime")])
    return subprocess.run(
        [sys.executable, "-m", "iegopt_runtime", *map(str, arguments)],
        capture_output=True, text=True, timeout=timeout, env=os.environ | {"PYTHONPATH": paths}, check=False,
    )  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(dump("cluster", local_cluster()))
    return file


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    return file


@pytest.mark.slow
def test_a_request_is_run_and_traced(tmp_path: Path, cluster: Path) -> None:
    request, trace = tmp_path / "request.yaml", tmp_path / "trace.json"
    request.write_text(dump("request", tiny_request(output=12)))
    done = iegopt("run", request, "--cluster", cluster, "--prompt", "Hello", "--json", "--trace", trace)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["status"] == "complete"
    assert done.stderr == ""
    rows: list[dict[str, Any]] = json.loads(trace.read_text())["traceEvents"]
    slices = {row["name"] for row in rows if row["ph"] == "X"}
    assert {"plan 1", "tokenize", "prefill", "decode", "output"} <= slices
    assert all(row["ts"] >= 0 and row["dur"] >= 0 for row in rows if row["ph"] == "X")
    limited = iegopt("run", request, "--cluster", cluster, "--prompt", "x" * 5000)
    assert limited.returncode == 5
    assert "context" in limited.stdout
    assert "Traceback" not in limited.stderr


def test_a_run_that_is_terminated_leaves_nothing(tmp_path: Path) -> None:
    files = {name: tmp_path / f"{name}.yaml" for name in ("request", "cluster", "tools")}
    stages = [{"id": "wait", "type": "tool"}, {"id": "output", "type": "output"}]
    edges = [{"from": "wait", "to": "output", "bytes": "1KB"}]
    host = {"id": "host", "model": "cpu-generic-32c", "resident": [], "worker": {"roles": ["cpu", "tool"]}}
    files["request"].write_text(json.dumps({"request": {"graph": {"name": "g", "stages": stages, "edges": edges}}}))
    files["cluster"].write_text(json.dumps({"cluster": {"name": "one", "devices": [host]}}))
    began = tmp_path / "began"
    wait = {"command": ["sh", "-c", f"touch {began}; exec sleep 61"], "timeout": "60s"}
    files["tools"].write_text(json.dumps({"tools": {"wait": wait}}))
    (tmp_path / "t").mkdir()
    paths = os.pathsep.join([str(ROOT), str(ROOT / "runtime")])
    command = [sys.executable, "-m", "iegopt_runtime", "run", files["request"], "--cluster", files["cluster"]]
    with subprocess.Popen(
        [*map(str, command), "--tools", str(files["tools"]), "--quiet"], stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": paths, "TMPDIR": str(tmp_path / "t")},
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while not began.exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert len(list((tmp_path / "t").iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=30)[1]
    assert (process.returncode, said) == (143, "iegopt: terminated\n")
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "chat", "--cluster", "cpu-only"), "no device has a worker"),
        (("run", "no-such-request", "--cluster", "local-pair"), "no-such-request"),
        (("run", "capital", "--cluster", "local-pair", "--tools", "/nowhere.yaml"), "there is no such file"),
        (
            ("run", "capital", "--cluster", "local-pair", "--prompt", "a\udcff"),
            "--prompt: byte 0xff at character 1: expected",
        ),
        (("models", "fetch", "gpt-9"), "model 'gpt-9': no artifact is known"),
        (("run", "capital"), "one of the arguments --cluster --controller is required"),
        (("run", "capital", "--controller", "unix:/nowhere"), "--controller needs --secret-file"),
        (("run", "capital", "--controller", "unix:/nowhere", "--trace", "/tmp/t.json"), "--trace goes with --cluster"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    assert main(list(arguments)) == 1
    told = capsys.readouterr().err
    assert words in told
    assert len(told.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "content", "words"),
    [
        ("--tools", "tools: {search: {python: 'no.such:x'}}", "FILE: tools.search.python: no.such:x: ModuleNotFound"),
        ("--tools", "tools: {search: {pyhton: 'a:b'}}", "FILE: tools.search.pyhton: unknown key"),
        ("--documents", '{"text": "a"}\n{"txet": "b"}', "FILE: line 2: "),
    ],
)
def test_a_file_for_workers_is_checked_before_any_is_started(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    option: str, content: str, words: str,
) -> None:  # fmt: skip
    def none(supervisor: Supervisor) -> None:
        raise AssertionError("workers are started")

    monkeypatch.setattr(Supervisor, "open", none)
    file = tmp_path / "file"
    file.write_text(content)
    assert main(["run", "capital", "--cluster", str(cluster), option, str(file)]) == 1
    told = capsys.readouterr().err
    assert words.replace("FILE", str(file)) in told
    assert len(told.strip().splitlines()) == 1


def test_a_file_that_no_worker_reads_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text(dump("cluster", local_cluster(host={"worker": {"roles": ["cpu", "retrieval"]}})))
    assert main(["run", "capital", "--cluster", str(cluster), "--tools", __file__]) == 1
    assert "it is read by local workers of role tool, there is none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"--device": "nobody"}, "no worker nobody/tool: its workers are prefiller/lm"),
        ({"--role": "lm", "--device": "host"}, "no worker host/lm"),
        ({"--controller": "nowhere"}, "expected unix:PATH or tcp:HOST:PORT"),
        ({"--secret-file": "/nowhere"}, "cannot be read"),
        ({"--heartbeat": "soon"}, "soon"),
    ],
)
def test_a_worker_that_cannot_be_is_told_why(
    cluster: Path, secret: Path, tmp_path: Path, changed: dict[str, str], words: str
) -> None:
    options = {
        "--device": "host", "--role": "tool", "--controller": f"unix:{tmp_path}/c.sock", "--secret-file": str(secret),
    } | changed  # fmt: skip
    done = iegopt("worker", cluster, *(word for pair in options.items() for word in pair))
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_worker_with_another_secret_ends_with_the_reason(cluster: Path, secret: Path, tmp_path: Path) -> None:
    async def refused() -> tuple[int | None, str, list[str]]:
        told: list[str] = []

        async def nobody(connection: Any) -> None:
            raise AssertionError("it was let in")

        async with Listener(b"another secret", nobody, told.append) as listener:
            address = await listener.listen(Address(path=str(tmp_path / "c.sock")))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "iegopt_runtime", "worker", str(cluster), "--device", "host", "--role", "tool",
                "--controller", str(address), "--secret-file", str(secret), stderr=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runtime")])},
            )  # fmt: skip
            _, errors = await asyncio.wait_for(process.communicate(), 60)
            return process.returncode, errors.decode(), told

    code, errors, told = asyncio.run(refused())
    assert code == 1
    assert "host/tool does not know the secret" in errors
    assert told == ["host/tool does not know the secret"]


@pytest.mark.slow
def test_a_worker_whose_controller_is_gone_ends_at_once(cluster: Path, secret: Path, tmp_path: Path) -> None:
    async def ended() -> tuple[int, float, float]:
        registered = asyncio.Event()

        async def hear(connection: Connection) -> None:
            while await connection.receive() is not None:
                registered.set()

        async with Listener(bytes.fromhex(SECRET), hear) as listener:
            address = await listener.listen(Address(path=str(tmp_path / "c.sock")))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "iegopt_runtime", "worker", str(cluster), "--device", "decoder", "--role", "lm",
                "--controller", str(address), "--secret-file", str(secret), "--folder", str(tmp_path),
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runtime")])},
            )  # fmt: skip
            await asyncio.wait_for(registered.wait(), 60)
        await asyncio.sleep(0.3)  # it tries to reach the controller again, less and less often
        begun = time.monotonic()
        process.terminate()
        return await process.wait(), begun, time.monotonic()

    code, begun, end = asyncio.run(ended())
    assert code == 0
    assert end - begun < 1.0
    assert list(tmp_path.glob("iegopt-worker-*")) == []


@pytest.mark.slow
def test_parts_that_were_started_alone_answer_over_tcp(cluster: Path, tmp_path: Path) -> None:
    """A controller and the workers that a request needs, each a process of its own; tokens go straight to the model."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "runtime")])}
    made, journal, request = tmp_path / "made", tmp_path / "journal", tmp_path / "request.yaml"
    graph = {"stages": [{"id": "find", "type": "retrieval"}]}
    request.write_text(dump("request", tiny_request(graph=graph)))
    documents = tmp_path / "documents.jsonl"
    documents.write_text('{"text": "Lead aprons hang in room 12."}\n')
    start = [sys.executable, "-m", "iegopt_runtime"]
    listen = [*start, "controller", cluster, "--listen", "tcp:127.0.0.1:0", "--journal", journal, "--secret-file", made]
    with subprocess.Popen(list(map(str, listen)), stderr=subprocess.PIPE, text=True, env=environment) as controller:
        assert controller.stderr is not None
        address = controller.stderr.readline().split()[-1]
        assert address.startswith("tcp:127.0.0.1:")
        options = ["--controller", address, "--secret-file", str(made)]
        serve = [*start, "worker", str(cluster), "--device", "host", "--role", "retrieval", *options]
        with subprocess.Popen([*serve, "--documents", str(documents)], env=environment) as worker:
            assert "host/retrieval serves host as retrieval" in controller.stderr.readline()
            done = iegopt("run", request, *options, "--prompt", "aprons", "--json")
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["stages"]["find"]["state"] == "COMPLETED"
            worker.terminate()
            assert worker.wait(30) == 0
        controller.terminate()
        assert controller.wait(30) == 0


def test_a_controller_makes_its_secret_and_ends_on_sigterm(cluster: Path, tmp_path: Path) -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "runtime")])
    command = [
        sys.executable, "-m", "iegopt_runtime", "controller", str(cluster), "--listen", f"unix:{tmp_path}/c.sock",
        "--journal", str(tmp_path / "journal"), "--secret-file", str(tmp_path / "made"), "--die-with-parent",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": paths}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        assert "listening on unix:" in process.stderr.readline()
        again = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert again.returncode == 1
        assert "another controller holds this journal" in again.stderr
        command[command.index("--journal") + 1] = str(tmp_path / "other")
        before = sorted(tmp_path.iterdir())
        taken = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
        assert (taken.returncode, "another process does" in taken.stderr) == (1, True)
        assert sorted(tmp_path.iterdir()) == before
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert (tmp_path / "journal").exists()
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex((tmp_path / "made").read_text())) == 32
    assert not (tmp_path / "c.sock").exists()
