"""CORAG where other frameworks want it: one module for each, which needs the extra of that name.

    from corag.integrations.llama_index import CoragPostprocessor
    from corag.integrations.langchain import CoragCompressor
    from corag.integrations.haystack import CoragSelector

Importing this package loads none of them.
"""
