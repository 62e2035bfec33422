"""Explanation of a plan (section 2.5 of the source): what binds, what each stage costs, what else there was."""

from iegopt.explain.explanation import explain

__all__ = ["explain"]
