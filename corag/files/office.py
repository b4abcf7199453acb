"""Archives of Office documents; slides and spreadsheets: PPTX by python-pptx, XLSX by openpyxl."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, time, timedelta
from typing import Any

from corag.files.markdown import FileText, TextBuilder
from corag.files.read import MAX_TEXT_BYTES, UnreadableFileError

# What a number format is made of: characters that are shown, colours and widths, places of digits, anything else.
_FORMAT = re.compile(r'"([^"]*)"|\\(.)|\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|[_*].|([0#?][0#?.,]*)|(.)', re.DOTALL)
_PLACES, _OTHER = 4, 5
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0"


@contextmanager
def check_archive(data: bytes, ending: str) -> Iterator[None]:
    """Refuse data that is no Office document, or would fill the memory when it is unpacked; name errors of its reader.

    Raises:
        UnreadableFileError: It is encrypted, damaged or too large.
    """
    if data.startswith(_COMPOUND_FILE):
        raise UnreadableFileError(
            f"encrypted, or in the old .{ending[:-1]} format; save it as .{ending} without a password"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # Pictures are packed already, and no text; whatever grows when it is unpacked may be text in their place.
            size = sum(
                max(part.file_size - ("/media/" in part.filename) * part.compress_size, 0)
                for part in archive.infolist()
            )
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableFileError(f"damaged: no zip archive, as .{ending} files are ({error})") from error
    if size > MAX_TEXT_BYTES:
        raise UnreadableFileError(f"{size / 2**20:,.0f} MiB when it is unpacked; split it")
    try:
        yield
    except (MemoryError, RecursionError, ImportError):
        raise
    # Readers raise errors of many kinds (of XML, zip, missing parts) for a damaged document.
    except Exception as error:
        raise UnreadableFileError(f"damaged: {type(error).__name__}: {error}") from error


def read_pptx(data: bytes, name: str) -> FileText:
    """Return the text of a PowerPoint document: a page for each slide, under its title, with tables and notes."""
    import pptx

    document = TextBuilder()
    with check_archive(data, "pptx"):
        slides = pptx.Presentation(io.BytesIO(data))
        for slide in slides.slides:
            document.page()
            title = slide.shapes.title
            document.heading(2, "" if title is None else title.text)
            for shape in _shapes(slide.shapes):
                if shape.has_text_frame and (title is None or shape.shape_id != title.shape_id):
                    document.block(_text(shape))
                elif shape.has_table:
                    document.table([[cell.text for cell in row.cells] for row in shape.table.rows])
                elif shape.has_chart:
                    document.table(_chart(shape.chart))
            if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
                document.block(_visible(slide.notes_slide.notes_text_frame.text))
        title = " ".join((slides.core_properties.title or "").split())
    return document.file(name if title.casefold() in ("", "powerpoint presentation") else title)


def _shapes(shapes: Iterable[Any]) -> Iterator[Any]:
    """Yield shapes, those of groups included."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


def _text(shape: Any) -> str:
    """Return the paragraphs of a shape; several of a placeholder as the list that its layout makes of them."""
    items = [(one.level, _visible(one.text)) for one in shape.text_frame.paragraphs if one.text.strip()]
    if len(items) < 2 or not shape.is_placeholder:
        return _visible(shape.text_frame.text)
    return "\n".join(f"{'  ' * level}- {text}" for level, text in items)


def _chart(chart: Any) -> list[list[str]]:
    """Return the numbers of a chart of any kind: a row for each category or point, a column for each series."""
    title = chart.chart_title.text_frame.text if chart.has_title and chart.chart_title.has_text_frame else ""
    series = chart._chartSpace.xpath(".//c:ser")
    names = _points(series[0], "(c:cat|c:xVal)") if series else {}
    columns = [_points(one, "(c:val|c:yVal)") for one in series]
    rows = sorted(set(names).union(*columns))
    cells = [[names.get(row, str(row + 1)), *(column.get(row, "") for column in columns)] for row in rows]
    return [[title, *(one.xpath("string(c:tx//c:v)") for one in series)], *cells]


def _points(series: Any, part: str) -> dict[int, str]:
    """Return the texts or numbers of a part of a series by their places, as the document shows them."""
    from openpyxl.styles.numbers import is_date_format  # type: ignore[import-untyped]
    from openpyxl.utils.datetime import from_excel  # type: ignore[import-untyped]

    number_format = series.xpath(f"string({part}//c:formatCode)")
    shown: dict[int, str] = {}
    for point in series.xpath(f"{part}//c:pt"):
        value = point.findtext("{*}v", "")
        if number_format:
            with suppress(ValueError, OverflowError):  # of #N/A, and of a number that is no date
                number = float(value)
                value = _shown(from_excel(number) if is_date_format(number_format) else number, number_format)
        shown.setdefault(int(point.get("idx")), value)
    return shown


def _visible(text: str) -> str:
    # A vertical tab is a line break inside a paragraph.
    return text.replace("\v", "\n").strip()


def read_xlsx(data: bytes, name: str) -> FileText:
    """Return the sheets of an Excel workbook as tables, with the last values that were calculated."""
    import openpyxl  # type: ignore[import-untyped]

    document = TextBuilder()
    with check_archive(data, "xlsx"):
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        for sheet in book.worksheets:
            if sheet.sheet_state != "visible":
                continue
            document.heading(2, sheet.title)
            # The size that a file claims may be wrong.
            sheet.reset_dimensions()
            rows = [[_shown(cell.value, cell.number_format or "") for cell in row] for row in sheet.iter_rows()]
            rows = [row for row in rows if any(map(str.strip, row))]
            document.sheet(rows)
    return document.file(name)


def _shown(value: Any, number_format: str) -> str:
    """Return a value as the workbook shows it, as far as its format says: `7.5%`, `$1,234.50`, `00421`, `30:00`."""
    if value is None:
        return ""
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(value.total_seconds()), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}" + (f":{seconds:02}" if "s" in number_format or seconds else "")
    if isinstance(value, datetime):
        dated, timed = value.date().isoformat(), value.time()
        return dated if timed == time() else f"{dated} {timed.isoformat()}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    sections: list[list[tuple[int, str]]] = [[]]  # of positive numbers, of negative ones, of 0, of text
    for match in _FORMAT.finditer(number_format):
        if match[0] == ";":
            sections.append([])
        elif match.lastindex:
            sections[-1].append((match.lastindex, match[match.lastindex]))
    number = 1 if value < 0 else 2 if value == 0 else 0
    parts = sections[number if number < len(sections) else 0]
    signed = "-" if value < 0 and len(sections) == 1 else ""
    places = [text for kind, text in parts if kind == _PLACES]
    if (
        not parts
        or len(places) > 1
        or any(kind == _OTHER and (text.isalpha() or text in "/:@") for kind, text in parts)
    ):
        return f"{value:.15g}"
    scaled = abs(value) * 100 ** parts.count((_OTHER, "%"))
    return signed + "".join(_digits(scaled, text) if kind == _PLACES else text for kind, text in parts).strip()


def _digits(value: float, places: str) -> str:
    """Return a number in digits, as `#,##0.0#` says: 0 is always written, # and ? where it is not 0."""
    whole, _, decimals = places.rstrip(",").partition(".")
    scaled = value / 1000 ** (len(places) - len(places.rstrip(",")))
    digits = f"{scaled:{',' if ',' in whole else ''}.{len(decimals)}f}"
    for _ in range(len(decimals) - decimals.count("0")):
        digits = digits.removesuffix("0")
    if "0" not in places and not digits.strip("0."):
        return ""
    integer, point, fraction = digits.partition(".")
    return integer.zfill(whole.count("0")) + (point + fraction if fraction else "")
