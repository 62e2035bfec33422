"""How many tokens a prompt has, where no tokenizer says it.

Four bytes of UTF-8 a token for text in alphabets, and three tokens for two CJK characters. The first is the usual rule
of thumb for English (about four characters a token), and gives the two-byte alphabets (Cyrillic, Greek, Arabic) two
characters a token; the second is on the high side for tokenizers with large vocabularies and near the mark for those of
some 32,000 entries, which split rarer characters into bytes. Languages differ by such factors in every tokenizer
(Petrov et al., Language Model Tokenizers Introduce Unfairness Between Languages, NeurIPS 2023).
"""

from __future__ import annotations

import math

__all__ = ["BYTES_PER_TOKEN", "TOKENS_PER_CJK", "estimate_tokens"]

BYTES_PER_TOKEN = 4
TOKENS_PER_CJK = 1.5

_CJK = (
    (0x3040, 0x30FF),  # kana
    (0x3400, 0x4DBF),  # ideographs, extension A
    (0x4E00, 0x9FFF),  # ideographs
    (0xAC00, 0xD7AF),  # hangul
    (0xF900, 0xFAFF),  # compatibility ideographs
    (0xFF00, 0xFFEF),  # full-width forms
    (0x20000, 0x3FFFF),  # ideographs, extensions B and on
)


def estimate_tokens(text: str) -> int:
    """Tokens of a text, at least 1 (the mark of its beginning).

    >>> estimate_tokens("Which device runs which stage?"), estimate_tokens("推理执行图")
    (8, 8)
    """
    cjk = sum(any(low <= ord(c) <= high for low, high in _CJK) for c in text if ord(c) >= _CJK[0][0])
    # Three bytes each in the basic plane; those beyond it are too rare to matter.
    other = max(0, len(text.encode("utf-8", errors="replace")) - 3 * cjk)
    return max(1, math.ceil(TOKENS_PER_CJK * cjk + other / BYTES_PER_TOKEN))
