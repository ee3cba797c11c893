"""The service as a process: put together, started, found and stopped."""
