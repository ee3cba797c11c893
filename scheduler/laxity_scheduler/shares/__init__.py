"""Deadline-elastic policies as rules over shares, and promises in front of any policy."""
