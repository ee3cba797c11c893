"""Where workers go: what can ever start, free GPUs per node, and the choice of nodes."""
