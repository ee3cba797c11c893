"""Answers from fitted models: how long a job still takes."""
