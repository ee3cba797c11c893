"""Fitted models in MLflow's model registry, and the run that shows their calibration."""
