"""The demo: real trainings under deadlines on this machine, from promise to report."""
