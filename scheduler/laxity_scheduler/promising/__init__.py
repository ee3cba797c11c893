"""Claims on GPUs over time, and whether one more can be promised beside them."""
