"""What runs in a worker: the training, its checkpoints, its reports, its group."""
