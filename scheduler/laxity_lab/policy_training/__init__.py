"""How the learned policy is trained and measured: made jobs, a teacher's decisions, reinforcement."""
