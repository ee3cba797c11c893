"""A training job as a value, and as the batch/v1 Job that says it."""
