"""Frames, handshake, connections: what is taken, and what is refused with which words."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iegopt.errors import InputError
from iegopt_runtime import handshake
from iegopt_runtime.errors import Refused, WireError
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, Listener, connect
from iegopt_runtime.net.frames import LONGEST, Frames, decode, decode_all, encode, read_frame, stamped

NAMES = st.text(max_size=8)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | NAMES | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def reader_of(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


def read_all(data: bytes) -> list[dict[str, Any]]:
    async def read() -> list[dict[str, Any]]:
        reader, frames = reader_of(data), []
        while (frame := await read_frame(reader)) is not None:
            frames.append(frame)
        return frames

    return asyncio.run(read())


@settings(max_examples=40)
@given(st.lists(st.dictionaries(NAMES, DATA, max_size=4), max_size=3), st.integers(0, 20))
def test_frames_come_back(frames: list[dict[str, Any]], cut: int) -> None:
    data = b"".join(encode(frame) for frame in frames)
    assert read_all(data) == frames
    assert decode_all(data + encode({"last": "x" * 20})[:cut]) == frames


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x00", "inside the length"),
        (b"\x00\x00\x00\x05ab", "3 bytes before the end"),
        ((LONGEST + 1).to_bytes(4, "big"), f"expected at most {LONGEST}"),
        (b"\xff\xff\xff\xffGET / HTTP/1.1", "expected at most"),
        (b"\x00\x00\x00\x01\xc1", "no frame"),
        (b"\x00\x00\x00\x01\x90", "a list: expected a map"),
        (b"\x00\x00\x00\x03\x81\x01\x02", "no frame"),
        (b"\x00\x00\x00\x02\x80\x80", "no frame"),
    ],
)
def test_other_bytes_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(WireError, match=words):
        read_all(data)


@given(st.binary(max_size=200))
def test_no_bytes_do_anything_else(body: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(decode(body), dict)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(NAMES, DATA, max_size=4), max_size=5), st.integers(1, 50))
def test_frames_are_cut_wherever_their_bytes_are_parted(frames: list[dict[str, Any]], size: int) -> None:
    data, cutter = b"".join(encode(frame) for frame in frames), Frames()
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    assert [decode(body) for part in parts for body in cutter.cut(part)] == frames
    cutter.end()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x00\x00", "inside the length"),
        (b"\x00\x00\x00\x05ab", "3 bytes before the end"),
        (b"\x00\x00\x00\x01\x80" + (LONGEST + 1).to_bytes(4, "big"), f"expected at most {LONGEST}"),
    ],
)
def test_a_stream_that_is_cut_short_or_announces_too_much_is_refused(data: bytes, words: str) -> None:

    def read() -> None:
        cutter = Frames()
        cutter.cut(data)
        cutter.end()

    with pytest.raises(WireError, match=words):
        read()


@given(st.dictionaries(st.text(max_size=3), DATA, max_size=20) | st.just({"at": 7.0, "type": "x"}), st.floats(0, 1e12))
def test_a_stamp_is_the_time_that_counts(frame: dict[str, Any], at: float) -> None:
    assert decode(stamped(encode(frame)[4:], at)) == frame | {"at": at}


def test_what_is_sent_in_one_moment_goes_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = asyncio.StreamWriter.write

    def noted(writer: asyncio.StreamWriter, data: bytes) -> None:
        written.append(data)
        write(writer, data)

    async def talk() -> None:
        async with Listener(b"s", _echo) as listener:
            address = await listener.listen(Address(path=str(tmp_path / "c.sock")))
            connection = await connect(address, b"s", "w0", "worker")
            monkeypatch.setattr(asyncio.StreamWriter, "write", noted)
            for n in range(3):
                connection.send({"n": n})
            assert written == []
            answers = [await connection.receive() for _ in range(3)]
            assert [answer["n"] for answer in answers if answer is not None] == [0, 1, 2]
            connection.send({"n": 3})
            connection.close()  # nothing is held back

    asyncio.run(talk())
    assert written[0] == encode({"n": 0}) + encode({"n": 1}) + encode({"n": 2})
    assert encode({"n": 3}) in written


def test_a_bomb_of_nesting_is_refused() -> None:
    body = b"\x81\xa1a" + b"\x91" * 500 + b"\xc0"
    with pytest.raises(WireError):
        decode(body)


@pytest.mark.parametrize("value", [{1, 2}, object(), 2**70])
def test_what_is_no_data_cannot_be_sent(value: object) -> None:
    with pytest.raises(WireError, match="type 'x' cannot be sent"):
        encode({"type": "x", "value": value})


@pytest.mark.parametrize("text", ["unix:/run/a.sock", "tcp:127.0.0.1:80", "tcp:[::1]:0", "tcp:host.example:65535"])
def test_addresses_come_back(text: str) -> None:
    assert str(Address.read(text)) == text


@pytest.mark.parametrize(
    "text", ["", "unix:", "/run/a.sock", "tcp:80", "tcp:h:65536", "tcp:h:x", "udp:h:1", "unix:" + "a" * 108]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"expected|at most"):
        Address.read(text)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [("unix:/a", True), ("tcp:127.0.0.9:1", True), ("tcp:[::1]:1", True), ("tcp:0.0.0.0:1", False), ("tcp:h:1", False)],
)  # fmt: skip
def test_loopback(text: str, verdict: bool) -> None:
    assert Address.read(text).is_loopback is verdict


def greet(secret: bytes, other: bytes, answer: dict[str, Any] | None = None) -> tuple[str, str]:
    opening = handshake.challenge()
    hello = handshake.hello(opening, other, "w0", "worker") | (answer or {})
    who = handshake.check_hello(opening, hello, secret)
    handshake.check_welcome(opening, hello, handshake.welcome(opening, hello, secret), other)
    return who


def test_both_sides_know_each_other() -> None:
    assert greet(b"s", b"s") == ("w0", "worker")


@pytest.mark.parametrize(
    ("other", "answer", "words"),
    [
        (b"t", {}, "w0 does not know the secret"),
        (b"s", {"name": "w1"}, "w1 does not know the secret"),
        (b"s", {"purpose": "client"}, "does not know the secret"),
        (b"s", {"protocol": 0}, "speaks protocol 0: expected 2"),
        (b"s", {"type": "Start"}, "in place of a hello"),
        (b"s", {"proof": 3}, "lacks"),
        (b"s", {"proof": "ä\ud800"}, "w0 does not know the secret"),
    ],
)
def test_a_caller_is_refused_with_the_reason(other: bytes, answer: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        greet(b"s", other, answer)


def test_an_accepting_side_that_does_not_know_the_secret_is_refused() -> None:
    opening = handshake.challenge()
    hello = handshake.hello(opening, b"s", "w0", "worker")
    with pytest.raises(Refused, match="other side does not know the secret"):
        handshake.check_welcome(opening, hello, handshake.welcome(opening, hello, b"t"), b"s")
    reflected = {"type": "welcome", "proof": hello["proof"]}
    with pytest.raises(Refused, match="other side does not know the secret"):
        handshake.check_welcome(opening, hello, reflected, b"s")


async def _echo(connection: Connection) -> None:
    while (frame := await connection.receive()) is not None:
        connection.send(frame | {"from": connection.name})


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_frames_go_both_ways_and_the_socket_is_its_owners_alone(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    told: list[str] = []

    async def talk() -> None:
        async with Listener(b"s", _echo, told.append) as listener:
            address = await listener.listen(
                Address(path=str(path)) if kind == "unix" else Address.read("tcp:127.0.0.1:0")
            )
            if kind == "unix":
                assert path.stat().st_mode & 0o777 == 0o600
            connection = await connect(address, b"s", "w0", "worker")
            connection.send({"type": "x", "n": 2**40})
            assert await connection.receive() == {"type": "x", "n": 2**40, "from": "w0"}
            with pytest.raises(Refused, match="w1 does not know the secret"):
                await connect(address, b"t", "w1", "worker")
            connection.send({"type": "y"})  # the refused caller cost nobody else anything
            assert await connection.receive() == {"type": "y", "from": "w0"}
            await connection.closed()

    asyncio.run(talk())
    assert told == ["w1 does not know the secret"]
    assert not path.exists()


def test_an_old_protocol_is_told_so(tmp_path: Path) -> None:
    async def talk() -> dict[str, Any] | None:
        async with Listener(b"s", _echo) as listener:
            address = await listener.listen(Address.read("tcp:127.0.0.1:0"))
            reader, writer = await asyncio.open_connection(address.host, address.port)
            opening = await read_frame(reader)
            assert opening is not None
            writer.write(encode(handshake.hello(opening, b"s", "w0", "worker") | {"protocol": 0}))
            reply = await read_frame(reader)
            writer.close()
            return reply

    assert asyncio.run(talk()) == {"type": "refused", "reason": "the other side speaks protocol 0: expected 2"}


def test_a_stale_socket_is_taken_over_and_a_live_one_is_not(tmp_path: Path) -> None:
    address = Address(path=str(tmp_path / "c.sock"))

    async def talk() -> None:
        async with Listener(b"s", _echo) as first:
            await first.listen(address)
            with pytest.raises(InputError, match="another process does"):
                await Listener(b"s", _echo).listen(address)
        import socket

        left = socket.socket(socket.AF_UNIX)
        left.bind(str(address.path))
        left.close()
        async with Listener(b"s", _echo) as third:
            await third.listen(address)
            await (await connect(address, b"s", "w", "worker")).closed()

    asyncio.run(talk())


def test_no_file_is_removed_for_a_socket(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("precious")

    async def listen() -> None:
        await Listener(b"s", _echo).listen(Address(path=str(file)))

    with pytest.raises(InputError, match="a file is there, expected a socket or nothing"):
        asyncio.run(listen())
    assert file.read_text() == "precious"


def test_a_frame_is_what_msgpack_writes() -> None:
    assert encode({"a": 1}) == b"\x00\x00\x00\x04" + msgpack.packb({"a": 1})
