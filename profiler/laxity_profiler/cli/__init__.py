"""The commands `laxity predict`, `profile` and `refit`."""
