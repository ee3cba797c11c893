"""Groups in the service's cycle: formed, planned, kept, shown."""
