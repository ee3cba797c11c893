"""A real API server."""
