"""Samples of files, and what was read of a file."""

from pathlib import Path

SAMPLES = Path(__file__).with_name("samples")
"""As other libraries than those that read them wrote them."""
ODD = SAMPLES.parent / "odd"
"""PDFs that are encrypted, without a text, and with a word of 40,000 letters."""
PUMP, VALVE = SAMPLES / "pump.1", SAMPLES / "valve.8"
"""Manual pages."""


def outline(file):
    """Path of headings and stripped body of each section with text."""
    return [
        (" > ".join(section.headings), file.text[section.body : section.end].strip())
        for section in file.sections
        if section.blocks
    ]
