"""Who is told what became of jobs, and what is read from others: MLflow, Prefect, webhooks."""
