"""What became of jobs, sent to MLflow, Prefect and webhooks; and what is read from them."""
