"""Errors of the agent that a user can mend: each message names the value, the rule and the remedy."""

from corag_base import CoragError


class AgentError(CoragError, ValueError):
    """A setting, a training table or a feature vector breaks a rule."""


class CheckpointError(AgentError):
    """A checkpoint folder is missing, damaged, of another format, or would overwrite something else."""
