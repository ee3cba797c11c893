"""Who gets GPUs and how many: rankings, victims, surplus, and the decisions that lead there."""
