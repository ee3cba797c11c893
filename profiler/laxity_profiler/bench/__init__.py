"""Benches of this floor: `laxity bench answers`, `ingest` and `prediction`."""
