"""KV on its way between stores: whole and checked, or not at all."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from iegopt.errors import InputError
from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.errors import TransferError
from iegopt_runtime.handshake import LONGEST, PROTOCOL, hello
from iegopt_runtime.kv.address import bound, channel_on, connect
from iegopt_runtime.kv.auth import admit, enter
from iegopt_runtime.kv.blocks import Chain, KvManifest
from iegopt_runtime.kv.channel import Channel
from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.history import passes
from iegopt_runtime.kv.layout import KvLayout
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.push import KvSender
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy

LAYOUT = KvLayout(layers=3, heads=2, head_dim=4, dtype="float32")
SECRET = b"shared"
MEMORY = DeviceMemory("cpu")
PLAIN = KvTransferConfig(chunk_size=1000, pipeline_depth=3, overlap_compute=True)
INT8 = PLAIN.model_copy(update={"compression": "int8"})
CONFIGS = [PLAIN, PLAIN.model_copy(update={"overlap_compute": False, "chunk_size": 10**6, "pipeline_depth": 1}), INT8]


def new_store(folder: Path | None = None, size: int = 10**6) -> KvStore:
    budgets = {Tier.L0: size, Tier.L1: size} | ({Tier.L2: size} if folder else {})
    return KvStore(MEMORY, TierPolicy(budgets), folder)


def manifest(tokens: int = 150, kv_id: str = "r/1") -> KvManifest:
    chain = Chain("m/fp32", LAYOUT, 16)
    chain.follow(range(tokens), passes((("prefill", tokens),), 16))
    return KvManifest(kv_id, "m/fp32", LAYOUT, chain.blocks())


def content(whole: KvManifest) -> torch.Tensor:
    return torch.randn(LAYOUT.shape(whole.tokens), generator=torch.Generator().manual_seed(1))


def filled(whole: KvManifest, store: KvStore | None = None) -> KvStore:
    store = store or new_store()
    kv = content(whole)
    store.save(whole, lambda block: kv[:, :, :, block.begin : block.end], 0.0)
    return store


def kv_of(store: KvStore, held: KvManifest) -> torch.Tensor:
    return torch.cat([store.read(block, 0.0) for block in held.blocks], dim=3)


def close_to(kv: torch.Tensor, other: torch.Tensor, config: KvTransferConfig) -> bool:
    return kv.equal(other) if config.compression == "none" else bool((kv - other).abs().max() < 0.05)


@pytest.fixture(params=["unix", "abstract", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    names = {"unix": f"unix:{tmp_path}/s", "abstract": f"unix:@iegopt-{os.getpid()}-{tmp_path.name}"}
    return names.get(request.param, "tcp:127.0.0.1:0")


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    servers: list[KvServer] = []

    def start(store: KvStore, address: str, timeout: float = 20.0) -> str:
        servers.append(KvServer(store, SECRET, [address], lambda: 0.0, timeout))
        return servers[-1].addresses[0]

    yield start
    for server in servers:
        server.close()


def push(whole: KvManifest, to: str, config: KvTransferConfig, secret: bytes = SECRET) -> KvSender:
    kv = content(whole)
    sender = KvSender(to, secret, config, MEMORY, timeout=20.0)
    sender.begin(whole, 16)
    for block in whole.blocks:
        sender.block(block, kv[:, :, :, block.begin : block.end])
    return sender


def finished(sender: KvSender, whole: KvManifest) -> bool:
    released = threading.Event()
    sender.finish(whole, released.set)
    return released.wait(20)


@pytest.mark.parametrize("config", CONFIGS, ids=["pipelined", "at the end", "int8"])
def test_pushed_it_is_held_there(address: str, serve: Callable[..., str], config: KvTransferConfig) -> None:
    there, whole = new_store(), manifest()
    sender = push(whole, serve(there, address), config)
    assert finished(sender, whole)
    pushed = sender.pushed.result(20)
    assert (pushed.tokens, pushed.skipped) == (150, 0)
    held = there.manifest("r/1")
    assert held == pushed.manifest == whole.as_grade("exact" if config.compression == "none" else "int8")
    assert close_to(kv_of(there, held), content(whole), config)
    assert pushed.sent == whole.bytes if config.compression == "none" else pushed.sent < whole.bytes * 0.6


@pytest.mark.parametrize("config", CONFIGS, ids=["pipelined", "at the end", "int8"])
def test_fetched_it_is_held_here(address: str, serve: Callable[..., str], config: KvTransferConfig) -> None:
    whole = manifest()
    there, here = filled(whole), new_store()
    source = serve(there, address)
    fetched = KvFetcher(here, SECRET, lambda: 0.0).fetch_held("r/1", source, config)
    assert fetched.manifest.tokens == 150
    assert close_to(kv_of(here, fetched.manifest), content(whole), config)
    assert here.manifest("r/1") == fetched.manifest
    again = KvFetcher(here, SECRET, lambda: 0.0).fetch(whole, [source], config)
    assert (again.received, again.failures) == (0, ())


def test_only_what_is_missing_is_sent(address: str, serve: Callable[..., str]) -> None:
    whole, start = manifest(), manifest(64)
    there, here = filled(whole), filled(start)
    to = serve(here, address)
    sender = push(whole, to, PLAIN)
    assert finished(sender, whole)
    pushed = sender.pushed.result(20)
    assert (pushed.skipped, pushed.sent) == (4, whole.bytes - start.bytes)
    other = filled(start)
    fetched = KvFetcher(other, SECRET, lambda: 0.0).fetch(whole, [serve(there, address + "2")], PLAIN)
    assert (fetched.received, fetched.manifest.tokens) == (whole.bytes - start.bytes, 150)


def test_sources_are_asked_in_turn_and_say_why_they_did_not_help(serve: Callable[..., str], tmp_path: Path) -> None:
    whole = manifest()
    half, files = filled(manifest(96)), tmp_path / "files"
    filled(manifest(128), KvStore(MEMORY, TierPolicy({Tier.L2: 10**6}), files))
    here = new_store()
    sources = ["unix:@nobody-here", serve(half, "tcp:127.0.0.1:0"), f"file:{files}", f"file:{tmp_path}/none"]
    fetched = KvFetcher(here, SECRET, lambda: 0.0).fetch(whole, sources, PLAIN)
    assert fetched.manifest.tokens == 128
    assert fetched.received == manifest(128).bytes
    assert len(fetched.failures) == 1
    assert "nobody answers" in fetched.failures[0]


def test_files_may_hold_what_comes_after_what_others_have(serve: Callable[..., str], tmp_path: Path) -> None:
    whole, files = manifest(128), tmp_path / "files"
    later, kv = KvStore(MEMORY, TierPolicy({Tier.L2: 10**6}), files), content(whole)
    for block in whole.blocks[4:]:
        later.put(block, kv[:, :, :, block.begin : block.end], 0.0, Tier.L2)
    sources = [f"file:{files}", serve(filled(manifest(64)), "tcp:127.0.0.1:0")]
    fetched = KvFetcher(new_store(), SECRET, lambda: 0.0).fetch(whole, sources, PLAIN)
    assert (fetched.manifest.tokens, fetched.received) == (128, whole.bytes)


def test_compressed_kv_never_stands_in_for_exact_one(serve: Callable[..., str]) -> None:
    whole, there = manifest(), new_store()
    sender = push(whole, serve(there, "tcp:127.0.0.1:0"), INT8)
    assert finished(sender, whole)
    sender.pushed.result(20)
    assert there.match(whole.blocks) == 0
    # It is handed on as it is, without a second loss.
    further = new_store()
    source = serve(there, "tcp:127.0.0.1:0")
    fetched = KvFetcher(further, SECRET, lambda: 0.0).fetch(whole, [source], INT8)
    assert fetched.manifest.tokens == 150
    assert kv_of(further, fetched.manifest).equal(kv_of(there, whole.as_grade("int8")))
    assert fetched.received == whole.bytes


def test_where_there_is_no_room_the_beginning_is_held(address: str, serve: Callable[..., str]) -> None:
    whole, there = manifest(), new_store(size=manifest(48).bytes)
    sender = push(whole, serve(there, address), PLAIN)
    assert finished(sender, whole)
    assert sender.pushed.result(20).tokens == 96
    assert there.manifest("r/1") is not None


def test_a_transfer_called_off_leaves_nothing(address: str, serve: Callable[..., str]) -> None:
    whole, there = manifest(), new_store()
    sender = push(whole, serve(there, address), PLAIN)
    sender.abort("cancelled")
    with pytest.raises(TransferError, match="called off: cancelled"):
        sender.pushed.result(20)
    wait_for(lambda: there.use().blocks == dict.fromkeys(Tier, 0))
    assert there.held() == ()


def wait_for(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_receiver_that_dies_fails_the_sender_and_frees_its_memory(address: str) -> None:
    store = new_store()
    server = KvServer(store, SECRET, [address], lambda: 0.0)
    whole, start = manifest(), manifest(64)
    sender = push(start, server.addresses[0], PLAIN)
    wait_for(lambda: store.match(start.blocks) == 4)
    server.close()
    for block in whole.blocks[4:]:
        sender.block(block, content(whole)[:, :, :, block.begin : block.end])
    assert finished(sender, whole)
    with pytest.raises(TransferError, match=r"gone|closed"):
        sender.pushed.result(20)
    wait_for(lambda: store.use().blocks == dict.fromkeys(Tier, 0))


def greeted(to: str, secret: bytes, purpose: str, changed: dict[str, object]) -> dict[str, object]:
    """What a server says to a caller who does not look whether it knows the secret."""
    channel = connect(to, 20.0)
    opening, _ = channel.receive()
    channel.send(hello(opening, secret, "w0", purpose) | changed)
    answer, _ = channel.receive()
    if answer["type"] == "refused":
        with pytest.raises(TransferError):
            channel.receive()
    channel.close()
    return answer


def test_another_secret_is_refused_on_either_side(address: str, serve: Callable[..., str]) -> None:
    to = serve(filled(manifest()), address)
    with pytest.raises(TransferError, match=r"process \d+ does not know the secret"):
        KvFetcher(new_store(), b"other", lambda: 0.0).fetch_held("r/1", to, PLAIN)
    assert greeted(to, b"other", "kv", {}) == {"type": "refused", "reason": "w0 does not know the secret"}
    assert greeted(to, SECRET, "kv", {})["type"] == "welcome"
    mine, theirs = tcp_pair()
    ends = [channel_on(end, 20.0) for end in (mine, theirs)]
    ends[1].send({"type": "challenge", "protocol": PROTOCOL, "nonce": "00"})
    ends[1].send({"type": "welcome", "proof": "00"})
    with pytest.raises(TransferError, match="the other side does not know the secret"):
        enter(ends[0], SECRET)
    for end in ends:
        end.close()


@pytest.mark.parametrize(
    ("purpose", "changed", "said"),
    [
        ("kv", {"protocol": PROTOCOL + 1}, f"the other side speaks protocol {PROTOCOL + 1}: expected {PROTOCOL}"),
        ("worker", {}, "a call for 'worker': expected 'kv'"),
        ("worker", {"purpose": "kv"}, "w0 does not know the secret"),
        ("kv", {"type": "push"}, "'push' came in place of a hello"),
    ],
)
def test_other_callers_are_told_why_they_are_refused(
    serve: Callable[..., str], purpose: str, changed: dict[str, object], said: str
) -> None:
    to = serve(new_store(), "tcp:127.0.0.1:0")
    assert greeted(to, SECRET, purpose, changed) == {"type": "refused", "reason": said}


def test_nothing_long_and_no_memory_is_taken_from_one_who_has_proven_nothing(
    address: str, serve: Callable[..., str]
) -> None:
    to = serve(new_store(), address)
    channel = connect(to, 20.0)
    channel.receive()
    channel.send({"type": "hello", "name": "x" * LONGEST})
    with pytest.raises(TransferError, match=r"gone|closed"):
        channel.receive()
    channel.close()
    before = len(os.listdir("/proc/self/fd"))
    mine, theirs = socket.socketpair(socket.AF_UNIX)
    fd = os.memfd_create("x")
    socket.send_fds(mine, [b"\0\0\0\2{}"], [fd])
    assert channel_on(theirs, 20.0).receive_plain(LONGEST) == {}
    assert len(os.listdir("/proc/self/fd")) == before + 3
    for end in (mine, theirs):
        end.close()
    os.close(fd)


def test_unknown_kv_and_nonsense_get_a_clear_answer(serve: Callable[..., str]) -> None:
    to = serve(new_store(), "tcp:127.0.0.1:0")
    with pytest.raises(TransferError, match="KV 'none' is not held here"):
        KvFetcher(new_store(), SECRET, lambda: 0.0).fetch_held("none", to, PLAIN)
    for request, said in (({"op": "x"}, "expected push or pull"), ({"op": "push"}, "no such request")):
        channel = connect(to, 20.0)
        enter(channel, SECRET)
        channel.send(request)
        assert said in channel.receive()[0]["error"]
        channel.close()


def pair(family: socket.AddressFamily) -> tuple[Channel, Channel]:
    ends = socket.socketpair(family) if family == socket.AF_UNIX else tcp_pair()
    return channel_on(ends[0], 20.0), channel_on(ends[1], 20.0)


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mine = socket.create_connection(listener.getsockname())
        return mine, listener.accept()[0]


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_damaged_body_is_noticed(family: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = pair(family)
    sender.open_slots(1, 10)
    sender.slot(0, 10)[:] = b"0123456789"
    sender.send({"a": 1}, 0, 10)
    header, body = receiver.receive()
    assert (header["a"], bytes(body)) == (1, b"0123456789")
    del body
    for module in ("tcp", "memfd"):
        monkeypatch.setattr(f"iegopt_runtime.kv.{module}.checksum", lambda data: 1)
    sender.send({"a": 2}, 0, 10)
    with pytest.raises(TransferError, match="arrived damaged"):
        receiver.receive()
    sender.close()
    receiver.close()


def test_shared_memory_that_could_shrink_is_refused() -> None:
    mine, theirs = socket.socketpair(socket.AF_UNIX)
    receiver = channel_on(theirs, 20.0)
    fd = os.memfd_create("x")
    os.ftruncate(fd, 10)
    socket.send_fds(mine, [b"\0\0\0\2{}"], [fd])
    os.close(fd)
    with pytest.raises(TransferError, match="not sealed"):
        receiver.receive()
    receiver.close()
    mine.close()


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"\xff\xff\xff\xff", "a header of 4294967295 bytes"),
        (b"\0\0\0\1x", "no JSON object"),
        (b"\0\0\0\1", "closed"),
        (b'\0\0\0\x0c{"size":-1 }', "a body of -1 bytes"),
    ],
)
def test_nonsense_on_the_wire_is_refused(sent: bytes, said: str) -> None:
    mine, theirs = tcp_pair()
    mine.sendall(sent)
    mine.shutdown(socket.SHUT_WR)
    receiver = channel_on(theirs, 20.0)
    with pytest.raises(TransferError, match=said):
        receiver.receive()
    receiver.close()
    mine.close()


def test_a_silent_peer_is_given_up() -> None:
    mine, theirs = tcp_pair()
    with pytest.raises(TransferError, match="timed out"):
        admit(channel_on(theirs, 0.05), SECRET)
    mine.close()
    theirs.close()


def test_a_source_that_hangs_is_waited_for_no_longer_than_asked(serve: Callable[..., str]) -> None:
    deaf, address = bound("unix:@iegopt-deaf")
    here, begun = new_store(), time.monotonic()
    sources = [address, serve(filled(manifest(96)), "tcp:127.0.0.1:0")]
    fetched = KvFetcher(here, SECRET, lambda: 0.0, 60.0).fetch(manifest(96), sources, PLAIN, 0.1)
    deaf.close()
    assert (fetched.manifest.tokens, len(fetched.failures)) == (96, 1)
    assert "timed out" in fetched.failures[0]
    assert 0.1 <= time.monotonic() - begun < 30


def test_a_server_that_gets_no_thread_refuses_that_peer_alone(
    serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, start = serve(filled(manifest(96)), "unix:@iegopt-no-thread"), threading.Thread.start

    def short(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", short)
    fetcher = KvFetcher(new_store(), SECRET, lambda: 0.0, 20.0)
    assert len(fetcher.fetch(manifest(96), [address], PLAIN).failures) == 1
    assert fetcher.fetch(manifest(96), [address], PLAIN).manifest.tokens == 96


@pytest.mark.parametrize("address", ["unix:", "tcp:127.0.0.1", "tcp::80", "tcp:h:99999", "file:/x", "x"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="expected unix:PATH"):
        bound(address)


def test_no_file_is_removed_for_a_socket_which_is_its_owners_alone(tmp_path: Path) -> None:
    file, path = tmp_path / "notes.txt", tmp_path / "s"
    file.write_text("precious")
    with pytest.raises(InputError, match="a file is there, expected a socket or nothing"):
        bound(f"unix:{file}")
    assert file.read_text() == "precious"
    for _ in range(2):  # the second takes over what the first has left
        bound(f"unix:{path}")[0].close()
    assert path.stat().st_mode & 0o077 == 0


def test_of_all_addresses_others_are_told_one_that_reaches_here() -> None:
    store = filled(manifest())
    server = KvServer(store, SECRET, ["tcp:0.0.0.0:0"], lambda: 0.0, towards="127.0.0.1")
    (address,) = server.addresses
    assert address.startswith("tcp:127.0.0.1:")
    assert KvFetcher(new_store(), SECRET, lambda: 0.0).fetch_held("r/1", address, PLAIN).manifest == manifest()
    server.close()
    with bound("tcp:0.0.0.0:0")[0] as listener:
        assert listener.getsockname()[0] == "0.0.0.0"


def test_no_descriptor_and_no_file_is_left(serve: Callable[..., str], tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    whole, there = manifest(), new_store()
    server = KvServer(there, SECRET, [f"unix:{tmp_path}/s"], lambda: 0.0)
    for _ in range(3):
        sender = push(whole, server.addresses[0], PLAIN)
        assert finished(sender, whole)
        sender.pushed.result(20)
        KvFetcher(new_store(), SECRET, lambda: 0.0).fetch_held("r/1", server.addresses[0], PLAIN)
    server.close()
    assert list(tmp_path.iterdir()) == []
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before)
