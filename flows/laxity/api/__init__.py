"""The service seen from outside: its HTTP API, a job followed to its end, and its words."""
