"""One object of Kubernetes, read: pure functions of its JSON."""
