"""What the site needs beside `docs/`: the files of the project that its pages link to."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(\.\./([^)#\s]+)")
FOLDER_LINK = re.compile(r"\[([^\]]+)\]\(\.\./[^)#\s]+\)")
CONFIGS = (".yaml", ".yml")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each file outside of `docs/` that a page links to, under its own path."""
    pages = [file for file in files.documentation_pages() if not file.src_uri.startswith("reference/")]
    for name in sorted({name for page in pages for name in LINK.findall(page.content_string)}):
        path = ROOT / name
        if path.is_file():
            # A page of its own would be rendered, and its links followed in turn.
            uri = f"files/{name}" + (".txt" if path.suffix in (".md", *CONFIGS) else "")
            files.append(File.generated(config, uri, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to those files lead to their copies; of a link to a folder, the text stays.

    Blocks that tests skip are plain Python to the site.
    """
    markdown = markdown.replace("```python skip", "```python")
    if page.file.src_uri.startswith("reference/"):
        return markdown

    def link(found: re.Match[str]) -> str:
        name = found.group(1)
        suffix = ".txt" if Path(name).suffix in (".md", *CONFIGS) else ""
        return f"](files/{name}{suffix}" if (ROOT / name).is_file() else found.group(0)

    return FOLDER_LINK.sub(r"\1", LINK.sub(link, markdown))
