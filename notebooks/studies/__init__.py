"""Studies: the same simulations again and again, so that a claim has rows behind it."""
