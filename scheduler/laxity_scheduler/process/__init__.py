"""The service as a process: assembling, starting, finding and stopping it."""
