"""Text comes out whole, once, and never beyond a stop string."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iegopt_runtime.lm.text import StopStrings, TextStream
from iegopt_runtime.models.tiny import byte_tokenizer

TOKENIZER = byte_tokenizer()


@given(st.text(max_size=40))
def test_pieces_are_the_text_and_never_half_a_letter(text: str) -> None:
    stream = TextStream(TOKENIZER)
    pieces = [stream.push(token) for token in text.encode()]
    assert "".join(pieces) + stream.end() == text
    assert all("�" not in piece for piece in pieces) or "�" in text


@given(st.lists(st.integers(0, 255), max_size=60))
def test_bytes_that_are_no_text_do_not_hold_it_up(tokens: list[int]) -> None:
    stream = TextStream(TOKENIZER)
    pieces = [stream.push(token) for token in tokens]
    assert all(any(pieces[i : i + 9]) for i in range(len(pieces) - 9))
    stream.end()
    assert stream.end() == ""


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.data())
def test_output_ends_before_the_first_stop_string(text: str, strings: list[str], data: st.DataObject) -> None:
    stops = StopStrings(strings)
    shown, at = "", 0
    while at < len(text) and stops.met is None:
        size = data.draw(st.integers(1, 5))
        shown += stops.feed(text[at : at + size])
        at += size
    if stops.met is None:
        shown += stops.end()
        assert shown == text
        assert not any(string in text for string in strings)
    else:
        assert text.startswith(shown + stops.met)
        assert not any(string in shown for string in strings)
