"""Many trials of one training function under one deadline."""
