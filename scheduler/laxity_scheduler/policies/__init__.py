"""One paper, one page: each module decides a plan from a snapshot and a predictor."""
