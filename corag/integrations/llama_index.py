"""LlamaIndex: a node postprocessor that chooses and orders nodes under a token budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corag.errors import InputError
from corag.optional import needed

with needed("llama_index.core", "llama-index"):
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

    from corag.integrations.choosing import KEY, Chooser


class CoragPostprocessor(Chooser, BaseNodePostprocessor):
    """Chooses which nodes go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the context that response synthesizers build: the text of each node as the language model
    sees it (`MetadataMode.LLM`), with the metadata in front, and `separator` between nodes.

    See `corag.integrations.choosing.Chooser` for what comes back, and the other settings.
    """

    separator: str = "\n\n"

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex keeps with the settings."""
        return "CoragPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("there is no question to choose nodes for; give query_bundle or query_str")
        return self.choose(query_bundle.query_str, nodes)[0]

    def _write(self, document: NodeWithScore | None, text: str, note: Mapping[str, Any]) -> NodeWithScore:
        """Return a node with a text and a note that neither prompts nor embeddings show."""
        node = TextNode(text=text) if document is None else document.node.model_copy()
        if text != node.get_content(MetadataMode.NONE):
            node.set_content(text)
        node.metadata = {**node.metadata, KEY: note}
        node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, KEY]
        node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, KEY]
        return NodeWithScore(node=node, score=None if document is None else document.score)

    def _render(self, documents: Sequence[NodeWithScore]) -> str:
        shown = (document.node.get_content(MetadataMode.LLM).strip() for document in documents)
        return self.separator.join(text for text in shown if text)
