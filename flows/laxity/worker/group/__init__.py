"""The workers of one job as one group."""
