"""Models: the encoders, embedders and trained parts that rerankers, readers and the index share."""
