"""Chats with language models: of an Ollama server, of any OpenAI-compatible server, or run in this process.

`base` says what a chat is, `server` how servers are asked, `guard` what they may send; readers, summarizers and the
judge of an evaluation all ask through `base.Chat`.
"""
