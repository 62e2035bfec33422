"""The imperative shell around ``iegopt.control``: sockets, clock, journal, planner."""
