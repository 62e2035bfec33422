"""Pieces of SVG. Every text that comes from a document is escaped here."""

from __future__ import annotations

from html import escape

from iegopt.cli.format import plain

__all__ = ["BOLD", "clip", "esc", "rect", "svg", "text", "text_width", "titled"]

_EM = 0.58
"""Mean width of a letter of the page's font, in units of its size."""
BOLD = 15.0
"""Size, in px, of plain text as wide as the class ``name`` (13 px, bold)."""


def esc(words: object) -> str:
    """A text of the user as safe HTML, in element content and in attributes."""
    return escape(plain(str(words)), quote=True)


def text_width(words: str, size: float) -> float:
    """About how wide a text is, in px."""
    return len(words) * size * _EM


def clip(words: str, width: float, size: float) -> str:
    """As much of a text as fits, its end kept: ids differ at their ends."""
    fits = max(3, int(width / (size * _EM)))
    if len(words) <= fits:
        return words
    tail = (fits - 1) // 2
    return f"{words[: fits - 1 - tail]}…{words[len(words) - tail :]}"


def svg(width: float, height: float, label: str, body: str) -> str:
    """A drawing in its natural size."""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return f'<svg {size} role="img" aria-label="{esc(label)}">{body}</svg>'


def rect(x: float, y: float, width: float, height: float, kind: str, round_: float = 3) -> str:
    size = f'width="{max(width, 0):.1f}" height="{height:.1f}" rx="{round_:.1f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{esc(words)}</text>'


def titled(body: str, tooltip: str) -> str:
    """A group of shapes with a tooltip; the lines of the tooltip are escaped one by one."""
    lines = "\n".join(esc(line) for line in tooltip.splitlines())
    return f"<g><title>{lines}</title>{body}</g>"
