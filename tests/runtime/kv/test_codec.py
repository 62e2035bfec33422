"""Compressed KV has the size that was announced and errs by no more than its grid."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.codec import COMPRESSIONS, Compression, decode, encode, encoded_bytes, measure, used_for
from iegopt_runtime.kv.layout import KvLayout


def kv(layout: KvLayout, tokens: int, seed: int = 0) -> torch.Tensor:
    """Channels of very different sizes, as keys have them, and one that is nothing but zero."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(layout.shape(tokens), generator=generator)
    values *= torch.logspace(-3, 2, layout.head_dim)
    values[..., 0] = 0
    return values.to(getattr(torch, layout.dtype))


def there_and_back(block: torch.Tensor, layout: KvLayout, compression: Compression) -> torch.Tensor:
    layers, tokens = block.shape[0], block.shape[3]
    data = bytearray(encoded_bytes(layout, layers, tokens, compression))
    encode(block, compression, memoryview(data))
    back = torch.empty(block.shape, dtype=block.dtype)
    decode(memoryview(data), layout, layers, tokens, compression, back)
    return back


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@given(tokens=st.integers(1, 70), seed=st.integers(0, 9))
def test_uncompressed_nothing_changes(dtype: str, tokens: int, seed: int) -> None:
    layout = KvLayout(2, 3, 8, dtype)
    block = kv(layout, tokens, seed)
    assert there_and_back(block, layout, "none").equal(block)


@pytest.mark.parametrize(("compression", "steps"), [("int8", 127), ("int4", 7)])
@given(tokens=st.integers(1, 70), seed=st.integers(0, 9))
def test_integers_err_by_half_a_step_of_their_channel(
    compression: Compression, steps: int, tokens: int, seed: int
) -> None:
    layout = KvLayout(2, 3, 5, "float32")
    block = kv(layout, tokens, seed)
    error = (there_and_back(block, layout, compression) - block).abs()
    assert bool((error <= block.abs().amax(dim=3, keepdim=True) * (0.5 / steps) * 1.0001).all())


def test_fp8_errs_by_a_sixteenth_of_the_value() -> None:
    layout = KvLayout(2, 2, 16, "float32")
    block = kv(layout, 64)
    error = (there_and_back(block, layout, "fp8") - block).abs()
    floor = block.abs().amax(dim=3, keepdim=True) / 448 * 2**-9
    assert bool((error <= torch.maximum(block.abs() / 16, floor) * 1.001).all())


def test_what_it_costs_and_saves() -> None:
    layout = KvLayout(2, 2, 16, "float32")
    errors = {compression: measure(kv(layout, 64), layout, compression) for compression in COMPRESSIONS}
    assert errors["none"].largest == 0
    assert [round(errors[c].ratio, 3) for c in COMPRESSIONS] == [1.0, 0.266, 0.266, 0.141]
    assert errors["int8"].relative < 0.01 < errors["fp8"].relative < errors["int4"].relative < 0.2


def test_short_pieces_go_as_they_are() -> None:
    layout = KvLayout(2, 2, 16, "float32")
    assert used_for(layout, 1, "int8") == "none"
    assert used_for(layout, 2, "int8") == "int8"


def test_a_piece_of_another_length_is_refused() -> None:
    layout = KvLayout(2, 2, 16, "float32")
    with pytest.raises(TransferError, match="a piece of 5 bytes: expected 2304"):
        decode(memoryview(bytes(5)), layout, 2, 14, "int8", torch.empty(layout.shape(14)))
