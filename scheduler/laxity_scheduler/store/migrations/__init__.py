"""The tables of the service through time, newest last."""
