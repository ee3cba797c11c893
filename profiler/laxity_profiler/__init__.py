"""MEASURE: how long an epoch takes, and what a stop and a start cost."""
