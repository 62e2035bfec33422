"""A plan as one self-contained page."""

from iegopt.cli.html.page import page

__all__ = ["page"]
