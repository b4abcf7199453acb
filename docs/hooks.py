"""What the site needs beside `docs/`: the files of the project that its pages link to."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(\.\./([^)#\s]+)")
FOLDER_LINK = re.compile(r"\[([^\]]+)\]\(\.\./[^)#\s]+\)")


def copy_of(name: str) -> str:
    """Return where the site has a file; a page of its own would be rendered, and its links followed in turn."""
    return f"files/{name}" + (".txt" if name.endswith((".md", ".yaml", ".yml")) else "")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each file outside of `docs/` that a page links to, under its own path."""
    pages = [file for file in files.documentation_pages() if not file.src_uri.startswith("reference/")]
    for name in sorted({name for page in pages for name in LINK.findall(page.content_string)}):
        if (ROOT / name).is_file():
            files.append(File.generated(config, copy_of(name), abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to those files lead to their copies; of a link to a folder, the text stays.

    Blocks that tests skip are plain Python to the site.
    """
    markdown = markdown.replace("```python skip", "```python")
    if page.file.src_uri.startswith("reference/"):
        return markdown
    copied = LINK.sub(lambda link: f"]({copy_of(link[1])}" if (ROOT / link[1]).is_file() else link[0], markdown)
    return FOLDER_LINK.sub(r"\1", copied)
