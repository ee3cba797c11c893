"""Counts of the code's structure beside their goals: sizes, names, imports. `make metrics`."""
