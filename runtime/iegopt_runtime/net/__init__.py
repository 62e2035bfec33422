"""Frames, handshake and connections: the one seam of network I/O."""
