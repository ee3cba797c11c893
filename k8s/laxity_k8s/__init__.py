"""ACT: the live world, on a Kubernetes API server or on this machine."""
