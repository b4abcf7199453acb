"""Texts: documents and chunks, tokens, data folders."""
