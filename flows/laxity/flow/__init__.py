"""A Prefect flow that is a job."""
