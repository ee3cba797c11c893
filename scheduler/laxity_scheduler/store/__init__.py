"""What the service keeps: journal, verdicts, jobs that ended, and how all of it is written."""
