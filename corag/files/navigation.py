"""What leads to other places: tables of contents, rows of links, and links alone at the top and end of a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

_BLOCKS = ("ul", "ol", "dl", "table", "p", "div", "header", "footer", "center")
_MIN_LINKS = 2
_MIN_LINKED = 0.75
"""Share of its letters and digits that links have in what only leads elsewhere."""
_RELATIONS = {"next", "prev", "previous", "up", "start", "contents", "index"}
# A row of links: what may be one, what says something in such a form, its letters and digits, and what divides it.
_ROWS = {"p", "div", "center", "header", "footer"}
_ENTRIES = {"li", "dd", "dt", "td", "th", "figcaption"}
HEADINGS = {"h2", "h3", "h4", "h5", "h6"}
_MAX_ROW = 200
_MIN_ROW_LINKED = 0.9
_DIVIDERS = set("|\u00a6\u00b7\u2022\u25cf\u00bb\u203a>/[]\u2013\u2014\u2190\u2192")


def is_row_of_links(parts: Iterable[tuple[object, str]]) -> bool:
    """Return whether a text is all links with dividers such as `|` between them, and short.

    `parts` are the pieces of the text in their order, each with the link that it is in, or None. Links with commas or
    spaces between them are an enumeration, which may be what the text is about.
    """
    linked = other = 0
    between: list[str] = [""]  # what is before, between and behind the links
    last: object = None
    for link, text in parts:
        size = sum(map(str.isalnum, text))
        if link is None:
            other += size
            between[-1] += text
        elif link is not last:
            between.append("")
            linked += size
        else:
            linked += size
        last = link if link is not None else last
    is_short = linked + other <= _MAX_ROW and linked >= _MIN_ROW_LINKED * (linked + other)
    return len(between) > _MIN_LINKS and is_short and all(map(_DIVIDERS.intersection, between[1:-1]))


def is_contents(num_links: int, inner: int, letters: int) -> bool:
    """Return whether a block is a table of contents: it is all links to places in the same page.

    Args:
        num_links: Its links.
        inner: Letters and digits of those to the same page.
        letters: Its letters and digits.
    """
    return num_links > _MIN_LINKS and inner >= _MIN_ROW_LINKED * letters


def remove_navigation(content: Any) -> None:
    """Remove from a page its tables of contents and rows of links, and links alone at its top and end.

    A row of links under a heading is what that is about, and stays; so does a page that would be empty.
    """
    letters: Counter[int] = Counter()
    linked: Counter[int] = Counter()
    inner: Counter[int] = Counter()
    links: Counter[int] = Counter()
    marked: Counter[int] = Counter()
    texts: list[tuple[int, list[Any]]] = []  # letters, and the blocks around them, the innermost first
    around: dict[int, tuple[list[Any], Any]] = {id(content): ([], None)}  # ancestors within the page, and the link
    places = {node.get("id") or node.get("name") for node in content.select("[id], a[name]")}
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
        is_inner = link is not None and _leads_to(link["href"], places)
        for element in above:
            letters[id(element)] += size
            linked[id(element)] += size if link is not None else 0
            inner[id(element)] += size if is_inner else 0

    def leads_elsewhere(element: Any) -> bool:
        key = id(element)
        share = linked[key] / letters[key]
        return links[key] >= _MIN_LINKS and (share >= _MIN_LINKED or 2 * marked[key] > links[key])

    def is_under_heading(element: Any) -> bool:
        while element is not content and element.find_previous_sibling() is None:
            element = element.parent
        return element is not content and element.find_previous_sibling().name in HEADINGS

    def is_row(element: Any) -> bool:
        key = id(element)
        if element.name not in _ROWS or links[key] < _MIN_LINKS or letters[key] > _MAX_ROW:
            return False
        if 2 * marked[key] > links[key]:
            return True
        if not _ENTRIES.isdisjoint(one.name for one in around[key][0]) or is_under_heading(element):
            return False
        return is_row_of_links((around[id(node.parent)][1], node) for node in element.descendants if node.name is None)

    blocks = [above[0] for above, _ in around.values() if above and above[0].name in _BLOCKS and letters[id(above[0])]]
    contents = [one for one in blocks if is_contents(links[id(one)], inner[id(one)], letters[id(one)])]
    removed = {id(block): block for block in (*contents, *filter(is_row, blocks))}
    for ordered in (texts, texts[::-1]):
        for _, above in ordered:
            around_it = (one for one in reversed(above) if one.name in _BLOCKS and leads_elsewhere(one))
            block = next(around_it, None)
            if block is not None and (marked[id(block)] or not is_under_heading(block)):
                removed[id(block)] = block
            elif not any(id(one) in removed for one in above):
                break
    left = sum(size for size, above in texts if not any(id(one) in removed for one in above))
    if left:
        for block in removed.values():
            block.extract()


def _leads_to(address: str, places: set[str]) -> bool:
    """Return whether a link leads to one of the places of its own page, whose name it may have."""
    page, mark, place = address.partition("#")
    return mark == "#" and (not page or (place in places and "/" not in page))
