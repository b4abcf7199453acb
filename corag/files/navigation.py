"""What leads to other places in a page: tables of contents, and links to its neighbours at its top and end."""

from __future__ import annotations

from collections import Counter
from typing import Any

_BLOCKS = ("ul", "ol", "dl", "table", "p", "div", "header", "footer", "center")
_MIN_LINKS = 2
_MIN_LINKED = 0.75
"""Share of its letters and digits that links have in what only leads elsewhere."""
_RELATIONS = {"next", "prev", "previous", "up", "start", "contents", "index"}


def remove_navigation(content: Any) -> None:
    """Remove from a page its tables of contents, and what is all links before its first and behind its last text.

    A block that is all links to places in the same page is a table of contents. A page that would be empty stays.
    """
    letters: Counter[int] = Counter()
    linked: Counter[int] = Counter()
    inner: Counter[int] = Counter()
    links: Counter[int] = Counter()
    marked: Counter[int] = Counter()
    texts: list[tuple[int, list[Any]]] = []  # letters, and the blocks around them, the innermost first
    around: dict[int, tuple[list[Any], Any]] = {id(content): ([], None)}  # ancestors within the page, and the link
    for node in content.descendants:
        above, link = around[id(node.parent)]
        if node.name is not None:
            around[id(node)] = ([node, *above], node if node.name == "a" and node.get("href") else link)
            if node.name == "a" and node.get("href"):
                for element in above:
                    links[id(element)] += 1
                    marked[id(element)] += bool(_RELATIONS.intersection(node.get_attribute_list("rel")))
            continue
        if not (size := sum(map(str.isalnum, node))):
            continue
        texts.append((size, above))
        for element in above:
            letters[id(element)] += size
            linked[id(element)] += size if link is not None else 0
            inner[id(element)] += size if link is not None and link["href"].startswith("#") else 0

    def leads_elsewhere(element: Any) -> bool:
        key = id(element)
        share = linked[key] / letters[key]
        return links[key] >= _MIN_LINKS and (share >= _MIN_LINKED or 2 * marked[key] > links[key])

    def is_contents(element: Any) -> bool:
        return links[id(element)] > _MIN_LINKS and inner[id(element)] >= 0.9 * letters[id(element)]

    def outermost(above: list[Any], condition: Any) -> Any:
        return next((one for one in reversed(above) if one.name in _BLOCKS and condition(one)), None)

    removed: dict[int, Any] = {}
    for _, above in texts:
        if (block := outermost(above, is_contents)) is not None:
            removed[id(block)] = block
    for ordered in (texts, texts[::-1]):
        for _, above in ordered:
            block = outermost(above, leads_elsewhere)
            if block is None and not any(id(one) in removed for one in above):
                break
            if block is not None:
                removed[id(block)] = block
    left = sum(size for size, above in texts if not any(id(one) in removed for one in above))
    if left:
        for block in removed.values():
            block.extract()
