"""Chains of batch jobs (Mirage, SC'23; docs/concepts/chains.md): somebody else's queue, from its log.

    difference = start(successor) - end(predecessor)     > 0 interruption, < 0 overlap

Nothing here submits a job to a real cluster.
"""
