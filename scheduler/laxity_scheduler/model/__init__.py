"""The words of a decision: jobs, the cluster, verdicts, decisions and their reasons."""
