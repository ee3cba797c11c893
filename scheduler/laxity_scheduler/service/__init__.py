"""The loop that observes, decides, writes down and acts, and what it knows of its jobs."""
