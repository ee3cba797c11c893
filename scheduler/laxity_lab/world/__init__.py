"""A simulated cluster: jobs, nodes, what really happens to them, and what changes cost."""
