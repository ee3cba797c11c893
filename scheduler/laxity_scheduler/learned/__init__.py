"""A policy that learns from its cluster: what it sees of jobs, the net, its file, the allocation."""
