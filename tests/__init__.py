"""Tests by behaviour; shared builders are imported from here as `tests.<module>`."""
