"""Forward passes in their canonical form, and keys that tell whether KV is equal to the bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iegopt_runtime.kv.blocks import Chain, KvManifest
from iegopt_runtime.kv.history import Segment, appended, fast, length, passes, read_segments
from iegopt_runtime.kv.layout import KvLayout

LAYOUT = KvLayout(layers=2, heads=2, head_dim=16, dtype="float32")
SEGMENTS = st.lists(st.tuples(st.sampled_from(["prefill", "decode"]), st.integers(1, 40)), max_size=6).map(tuple)


def chain(tokens: list[int], segments: tuple[Segment, ...], identity: str = "m/fp32") -> Chain:
    made = Chain(identity, LAYOUT, 8)
    made.follow(tokens, passes(segments, 8))
    return made


def keys(made: Chain) -> list[str]:
    return [block.key for block in made.blocks()]


def test_prefill_ends_at_multiples_and_decode_goes_one_by_one() -> None:
    assert passes((("prefill", 130), ("decode", 2), ("prefill", 61)), 64) == [64, 128, 130, 131, 132, 192, 193]
    assert passes((("prefill", 64),), 64) == [64]
    assert passes((), 64) == []


@given(SEGMENTS)
def test_passes_cover_every_token_once_and_stay_in_their_block(segments: tuple[Segment, ...]) -> None:
    ends = passes(segments, 8)
    begins = [0, *ends[:-1]]
    assert (ends[-1] if ends else 0) == length(segments)
    assert all(begin < end and begin // 8 == (end - 1) // 8 for begin, end in zip(begins, ends, strict=False) if ends)


def test_a_decode_that_goes_on_is_one_segment_and_two_prefills_are_two() -> None:
    assert appended((("decode", 3),), "decode", 2) == (("decode", 5),)
    assert appended((("prefill", 3),), "prefill", 2) == (("prefill", 3), ("prefill", 2))
    assert appended((("prefill", 3),), "decode", 0) == (("prefill", 3),)
    assert fast((("prefill", 3), ("decode", 4))) == (("prefill", 7),)
    assert fast(()) == ()


def test_segments_are_read_narrowly() -> None:
    assert read_segments([["prefill", 3], ("decode", 1)]) == (("prefill", 3), ("decode", 1))
    for wrong in (["prefill", 0], ["other", 3], ["prefill"], ["decode", "3"]):
        with pytest.raises(ValueError, match="expected"):
            read_segments([wrong])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(0, 39))
def test_equal_prefixes_have_equal_keys_and_others_none(tokens: list[int], at: int) -> None:
    segments: tuple[Segment, ...] = (("prefill", len(tokens)),)
    at %= len(tokens)
    changed = [*tokens[:at], tokens[at] + 1, *tokens[at + 1 :]]
    same, other = keys(chain(tokens, segments)), keys(chain(changed, segments))
    assert same == keys(chain(tokens, segments))
    assert [a == b for a, b in zip(same, other, strict=True)] == [i < at // 8 for i in range(len(same))]
    assert not set(same) & set(keys(chain(tokens, segments, identity="m/bf16")))


def test_tokens_computed_in_another_way_have_other_keys() -> None:
    tokens = list(range(20))
    whole, pieces = (("prefill", 20),), (("prefill", 10), ("decode", 4), ("prefill", 6))
    same = [a == b for a, b in zip(keys(chain(tokens, whole)), keys(chain(tokens, pieces)), strict=True)]
    assert same == [True, False, False]
    # A chunk of one token is what a decode does.
    assert keys(chain([1, 2], (("prefill", 1), ("prefill", 1)))) == keys(chain([1, 2], (("decode", 2),)))


def test_a_pass_across_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="end within its block"):
        chain(list(range(6)), (("prefill", 6),)).extend([1, 2, 3])


def test_a_manifest_comes_back_and_a_wrong_one_does_not() -> None:
    manifest = KvManifest("r1/prefill", "m/fp32", LAYOUT, chain(list(range(20)), (("prefill", 20),)).blocks())
    assert KvManifest.read(manifest.document()) == manifest
    assert (manifest.tokens, manifest.bytes) == (20, 20 * 2 * 2 * 2 * 16 * 4)
    document = manifest.document()
    for wrong in (
        {},
        document | {"blocks": document["blocks"][1:]},
        document | {"blocks": [["zz", 0, 8]]},
        document | {"blocks": [["AB" * 16, 0, 8]]},
        document | {"blocks": [["ab" * 16, 0, 8], ["ab" * 16, 8, 16]]},
        document | {"layout": LAYOUT.document() | {"dtype": "int3"}},
    ):
        with pytest.raises(ValueError, match=r"expected|manifest|hex"):
            KvManifest.read(wrong)
