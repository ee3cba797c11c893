"""The command `laxity`."""
