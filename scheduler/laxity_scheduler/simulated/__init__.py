"""Jobs and nodes that exist only as an event heap: for the lab, and to see how a queue will run down."""
