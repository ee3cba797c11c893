"""What laxity's authors measure: decisions, a cluster, predictions. In no wheel."""
