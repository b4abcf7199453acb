"""A folder of documents: finding the files, reading their text with its structure, cutting it into chunks.

Markdown and plain text need no extra package; HTML, PDF and DOCX need the extra `documents`.
"""

from corag.files.chunks import chunk_file as chunk_file
from corag.files.markdown import FileText as FileText
from corag.files.read import FoundFiles as FoundFiles
from corag.files.read import UnreadableFileError as UnreadableFileError
from corag.files.read import find_files as find_files
from corag.files.read import read_file as read_file
