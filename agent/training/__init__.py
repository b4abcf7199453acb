"""Training of the agent."""
