"""The snapshot that a policy decides on, kept in step with the cluster."""
