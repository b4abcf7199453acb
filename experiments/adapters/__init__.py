"""Adapters on all-MiniLM-L6-v2: small trained parts that ship with the project."""
