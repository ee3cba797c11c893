"""Kinds of `laxity bench`: this machine, a cluster, and predictions."""
