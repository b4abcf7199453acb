"""Sets of relevant chunks that repeat each other little, one chunk after the other: `mmr`, `adagres`, `submodular`."""
