"""Training of the small parts that ship with the project: values and the reader, on all-MiniLM-L6-v2."""
