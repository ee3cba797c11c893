"""The HTTP API of the service."""
