"""Chains of Jobs where the queue is another's: Kueue, a quota, other people's pods."""
