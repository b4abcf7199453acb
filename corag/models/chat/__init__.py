"""Chats with language models: of an Ollama server, of any OpenAI-compatible server, or run in this process.

Readers, summarizers and the judge of an evaluation all ask through `base.Chat`.
"""
