"""Progress that code posts by HTTP, heard beside it."""
