"""A folder of documents: finding the files, reading their text with its structure, cutting it into chunks.

Markdown and plain text need no extra package; HTML, PDF and DOCX need the extra `documents`.
"""

from corag.files.process import read_file as read_file
