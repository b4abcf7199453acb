"""The tree policies: upper confidence bounds over ordered combinations."""
