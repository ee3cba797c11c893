"""Chains: training that is longer than a batch cluster's wall-clock limit (Mirage, SC'23).

Batch clusters end a job after 24 or 48 hours. A training of two weeks is then a chain of jobs, and
each successor queues like any other job. Submitted late, it leaves an interruption: hours in which
nothing trains. Submitted early, it overlaps: predecessor and successor both hold nodes, and only
one of them trains. What is wanted is the instant between.

    difference = start(successor) - end(predecessor)     > 0 interruption, < 0 overlap

The answer depends on somebody else's queue. This folder replays such a queue from its log:
`queue_log` holds the jobs, `log_formats` reads them, `batch_cluster` simulates the cluster with
`cluster_loop` as its inner loop, `successor` puts a pair of jobs into it, `baselines` says when
simple users would submit, `waits` compares the simulation with the log, and `pair_bench` measures.
Nothing here submits a job to a real cluster.
"""
