"""How a provisioner of chains is trained: samples from a replayed queue, and the fits."""
