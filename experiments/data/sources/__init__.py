"""Public data sets by name: where their files lie, and one converter for each."""
