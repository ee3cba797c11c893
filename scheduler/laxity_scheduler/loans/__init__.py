"""Idle inference nodes lent to training, and given back with few preemptions (Aryl, Lyra)."""
