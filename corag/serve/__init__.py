"""The service: reranking and selecting over HTTP, and as tools of an assistant."""
