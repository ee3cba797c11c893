"""What was observed of trainings, in a database: epochs, stops, predictions."""
