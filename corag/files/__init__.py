"""A folder of documents: finding the files, reading their text with its structure, cutting it into chunks.

Markdown and all kinds of text need no extra package; HTML, PDF and Office files need the extra `documents`.
"""

from corag.files.process import read_file as read_file
from corag.files.read import read_bytes as read_bytes
