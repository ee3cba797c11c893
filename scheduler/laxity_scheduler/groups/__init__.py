"""Groups: several trainings with one deadline."""
