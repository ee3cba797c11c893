"""What the QoS policy is made of: verdicts, starts, sizes and donors, job by job and all at once."""
