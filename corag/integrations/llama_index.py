"""LlamaIndex: a node postprocessor that chooses and orders nodes under a token budget.

from corag.integrations.llama_index import CoragPostprocessor

engine = index.as_query_engine(
    similarity_top_k=20, node_postprocessors=[CoragPostprocessor(budget_tokens=1024, tokenizer="gpt-4o")]
)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from corag.errors import InputError
from corag.optional import needed

with needed("llama_index.core", "llama-index"):
    from llama_index.core.callbacks import CBEventType, EventPayload
    from llama_index.core.instrumentation import get_dispatcher
    from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode

    from corag.integrations.choosing import KEY, Chooser, DocumentLayout, Given

dispatcher = get_dispatcher(__name__)


class CoragPostprocessor(Chooser, BaseNodePostprocessor):
    """Chooses which nodes go into the prompt, how many, and in which order, under a token budget.

    The budget is that of the context that response synthesizers build: the text of each node as the language model
    sees it, by default with the metadata in front, and empty lines between nodes. The reranker reads what the embedding
    model saw: the metadata that is not excluded for it (a title without its key), and the text.

    Args:
        metadata_mode: How the prompt shows a node; synthesizers use `MetadataMode.LLM`. With `MetadataMode.ALL`, which
            shows every field, nodes do not say how they were chosen.
        separator: The text between two nodes in the prompt.

    See `corag.integrations.choosing.Chooser` for what comes back, and the other settings.
    """

    metadata_mode: MetadataMode = MetadataMode.LLM
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
        query = query_bundle.query_str
        dispatcher.event(ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=len(nodes), model_name=KEY))
        payload = {EventPayload.NODES: nodes, EventPayload.MODEL_NAME: KEY, EventPayload.QUERY_STR: query}
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
            chosen = self.choose(query, nodes, _Nodes(self.separator, self.metadata_mode))[0]
            event.on_end(payload={EventPayload.NODES: chosen})
        dispatcher.event(ReRankEndEvent(nodes=chosen))
        return chosen


class _Nodes(DocumentLayout[NodeWithScore]):
    """Nodes as response synthesizers show them."""

    def __init__(self, separator: str, mode: MetadataMode) -> None:
        super().__init__(separator)
        self._mode = mode

    def read(self, document: NodeWithScore) -> Given:
        node = document.node
        seen = {key: value for key, value in node.metadata.items() if key not in node.excluded_embed_metadata_keys}
        title = str(seen["title"]) if seen.keys() == {"title"} else node.get_metadata_str(MetadataMode.EMBED)
        return Given(node.node_id, node.get_content(MetadataMode.NONE), title.strip(), document.score)

    def write(self, document: NodeWithScore | None, text: str, note: Mapping[str, Any] | None) -> NodeWithScore:
        node = TextNode(text=text) if document is None else document.node.model_copy()
        if text != node.get_content(MetadataMode.NONE):
            node.set_content(text)
        if note is not None and self._mode != MetadataMode.ALL:
            node.metadata = {**node.metadata, KEY: note}
            node.excluded_llm_metadata_keys = [*node.excluded_llm_metadata_keys, KEY]
            node.excluded_embed_metadata_keys = [*node.excluded_embed_metadata_keys, KEY]
        return NodeWithScore(node=node, score=None if document is None else document.score)

    def render(self, documents: Sequence[NodeWithScore]) -> str:
        shown = (document.node.get_content(metadata_mode=self._mode).strip() for document in documents)
        return self.separator.join(text for text in shown if text)
