"""The planner: the way in for programs (``api``)."""

from iegopt.planner.api import DEFAULT_TIME_LIMIT, Planner, plan, replan

__all__ = ["DEFAULT_TIME_LIMIT", "Planner", "plan", "replan"]
