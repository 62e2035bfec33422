"""Artifacts: where the weights of a model lie, and the two models that need no download from a hub."""
