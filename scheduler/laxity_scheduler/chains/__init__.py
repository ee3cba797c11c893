"""Chains of jobs (Mirage, SC'23): what is seen of a queue, and the trained models that decide.

`snapshot_loop` and `features` say what a model sees, `provisioning` decides with it.
"""
