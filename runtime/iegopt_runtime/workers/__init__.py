"""Workers: processes that serve one device in one role each, and go on without a controller."""
