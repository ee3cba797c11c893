"""From a plan to patches, sent and answered."""
