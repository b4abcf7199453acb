"""What a language model judges: answers, contexts, and claims that it verifies."""
