"""Rows that the page draws."""
