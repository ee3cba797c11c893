"""Nodes as the scheduler sees them, and what binds a pod to one."""
