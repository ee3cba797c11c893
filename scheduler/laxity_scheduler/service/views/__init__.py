"""What is shown of a job and its verdict."""
