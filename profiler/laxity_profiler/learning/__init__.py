"""From observed runs to fitted models, and how far off they were."""
