"""Judge a policy on real traces in seconds, with the code that runs live."""
