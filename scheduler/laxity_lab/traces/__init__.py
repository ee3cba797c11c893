"""Traces of jobs: read, found, cut and generated."""
