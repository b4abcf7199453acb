"""Training, sweeping and comparing agents."""
