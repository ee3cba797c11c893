"""Chains of jobs on a real Slurm cluster, with no rights but a user's."""
