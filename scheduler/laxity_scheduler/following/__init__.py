"""Following a chain of links in somebody's queue, whichever it is."""
