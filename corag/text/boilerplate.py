"""Sentences that say nothing of a document's subject: notices, authors, lists of other pages, page numbers, headings.

They answer questions about just that, and no others. Only English ones are known.
"""

from __future__ import annotations

import re

from corag.text.units import Span, sentences_of
from corag.types import Chunk

# Sections of manual pages by man-pages(7), and of READMEs, that name people, terms and other pages.
_SECTION = re.compile(
    r"authors?|colophon|copying|copyright(?: and licen[cs]e)?|credits|legal(?: notices?)?|licen[cs](?:e|es|ing)"
    r"|reporting bugs|see also|table of contents|contents",
    re.IGNORECASE,
)
_FILE = r"(?:AUTHORS|CONTRIBUTORS|COPYING|COPYRIGHT|LICEN[CS]ES?|NOTICE)\b"
_TERMS = (
    r"(?:the\s+)?(?:terms\b|(?:[\w.+-]+\s+){0,4}licen[cs]e|[AL]?GPL|LGPL|GNU\b|MIT\b|BSD\b|ISC\b|MPL\b|Apache\b"
    r"|public\s+domain\b)"
)
_SENTENCE = re.compile(
    rf"""\W*(?:
        (?:portions\s+)?(?:copyright|\(c\)|\u00a9)\W+(?:\(c\)|\u00a9|\d{{4}}|[A-Z]\w+\s+\d{{4}})
        | .{{0,80}}\ball\s+rights\s+reserved
        | .{{0,80}}\b(?:licen[cs]ed|released|distributed|(?:made\s+)?available)\s+under\s+{_TERMS}
        | licen[cs]e:?\s+(?:[AL]?GPL|LGPL|MIT|BSD|Apache|MPL) | this\s+is\s+free\s+software | there\s+is\s+no\s+warranty
        | .{{0,40}}\b(?:see|read|in)\s+(?:the\s+)?(?:(?:file|accompanying|included)\s+)*(?-i:{_FILE})
        | part\s+of\s+the\s+\S+\s+(?:suite|package|project)\W*$
        | the\s+\S+\s+command\s+is\s+part\s+of\s+the\s+\S+\s+package | .{{0,20}}online\s+help:\s
        | (?:please\s+)?report\s+(?:any\s+)?(?:\w+\s+)?bugs\b | full\s+documentation\s+(?:at\s+)?<
        | page\s+\d+(?:\s*(?:/|of)\s*\d+)?\W*$
        | (?:[\w.+:-]+\(\d\w{{0,5}}\)[,.]?\s*(?:and\s+)?)+$
    )""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
_HEADING = re.compile(r"[A-Z]{2,}(?: [A-Z]{2,}){0,3}(?=\n\n)")
_CONCERNS = re.compile(
    r"\b(?:licen[cs]|copyright|copyleft|warrant|terms\b|legal|commercial|sell\b|redistribut|free\ software"
    r"|open[- ]source|author|wrote\b|written\b|maintain|contributor|credits|who(?:m|se)?\b|contact|report|bugs?\b|suite"
    r"|part\ of|belong|see\ also|related|similar|page\b|pages\b)",
    re.IGNORECASE,
)


def concerns_origin(question: str) -> bool:
    """Return whether a question may be about what boilerplate says: authors, terms, other documents."""
    return _CONCERNS.search(question) is not None


def contents_of(chunk: Chunk) -> list[Span]:
    """Return the spans of a passage's sentences that are no boilerplate; none if all of it is."""
    headings = chunk.metadata.get("headings") or [str(chunk.metadata.get("title") or "")]
    if isinstance(headings, list) and len(headings) > 1 and _SECTION.fullmatch(str(headings[-1]).strip()):
        return []
    text = chunk.text
    return [
        (start, end)
        for start, end in sentences_of(chunk)
        if not _SENTENCE.match(text[start:end]) and not ((head := _HEADING.match(text, start)) and head.end() == end)
    ]
