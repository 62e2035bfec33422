"""What people would use instead, each behind the protocol of an engine (``iegopt.bench.engines``)."""
