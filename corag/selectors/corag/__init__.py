"""The selector `corag`: search over ordered combinations, with settings that are fixed or predicted."""
