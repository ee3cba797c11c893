"""The words of a decision: jobs, the cluster, verdicts, decisions, their reasons and effects."""
