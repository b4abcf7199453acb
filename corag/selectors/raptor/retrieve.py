"""Which nodes of a tree speak to a question, best first or from the top down (RAPTOR, section 3, "Querying")."""

from __future__ import annotations

import numpy as np

from corag.errors import InputError
from corag.selectors.raptor.tree import Node, RaptorTree
from corag.types import FloatArray


def collapsed(tree: RaptorTree, query: FloatArray) -> list[Node]:
    """Return all nodes of all layers, most similar to the query first; of equal ones the lower in the tree.

    Args:
        tree: The tree.
        query: Unit vector of the question, `[D]`.
    """
    return [tree.nodes[place] for place in np.argsort(-(tree.vectors @ query), kind="stable").tolist()]


def traversal(tree: RaptorTree, query: FloatArray, *, top_k: int = 5, depth: int | None = None) -> list[Node]:
    """Return the best nodes of the top layer, the best among their children, and so on down.

    Args:
        tree: The tree.
        query: Unit vector of the question, `[D]`.
        top_k: Nodes of each layer, at least 1.
        depth: Layers to visit, or None for all.

    Returns:
        Nodes from the top down, in each layer most similar first.

    Raises:
        InputError: top_k or depth is below 1.
    """
    for name, value in (("top_k", top_k), ("depth", depth)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, got {value!r}; 5 is usual")
    found: list[Node] = []
    # A node that no summary took in stands at the top too.
    below = {child for node in tree.nodes for child in node.children}
    open_ones = [node for node in tree.nodes if node.id not in below]
    for _ in range(tree.num_layers if depth is None else depth):
        if not open_ones:
            break
        similarities = tree.vectors_of(open_ones) @ query
        chosen = [open_ones[place] for place in np.argsort(-similarities, kind="stable")[:top_k].tolist()]
        found += chosen
        children = dict.fromkeys(child for node in chosen for child in node.children)
        open_ones = [tree.nodes[tree.places[child]] for child in children]
    return found
