"""Chats with language models: of an Ollama server, or of any OpenAI-compatible server.

Readers, summarizers and the judge of an evaluation all ask through `base.Chat`.
"""
