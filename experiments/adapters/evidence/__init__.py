"""Training of the evidence rerankers."""
