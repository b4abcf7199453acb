"""What is computed once and kept: in memory, on disk."""
