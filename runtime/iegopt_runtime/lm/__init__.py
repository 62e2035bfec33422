"""Language models served by a worker: one engine thread that interleaves sequences token by token."""
