"""A snapshot as arrays: what its rows say, how long jobs take, and the compiled loops over them."""
