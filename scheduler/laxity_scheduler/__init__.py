"""DECIDE: a pure core that turns a snapshot of the cluster into a plan, and the service around it."""
