"""Frames and connections: the one seam of network I/O."""
