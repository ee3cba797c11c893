"""Where workers go: free GPUs per node, and the choice of nodes."""
