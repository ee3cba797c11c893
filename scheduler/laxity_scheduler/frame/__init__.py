"""Rows of a snapshot as arrays: what each job is, what each width takes, how long it still takes."""
