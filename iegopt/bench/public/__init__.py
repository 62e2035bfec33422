"""Public instance sets, read from their own formats; one unit of a set's cost is one second of ours."""
