"""Mail, and hostile shapes of markup; plain samples are among the golden readings."""

import pytest

import corag
from corag.files import read_file
from corag.files.chunks import chunk_file
from corag.files.read import UnreadableFileError, find_files
from tests.corag.files.worlds import ODD, SAMPLES, outline


def test_mail_is_told_by_what_is_in_it(tmp_path):
    (tmp_path / "1.M2P3").write_bytes((SAMPLES / "pump.eml").read_bytes())
    assert find_files(tmp_path).kinds == {"1.M2P3": "mail"}


@pytest.mark.parametrize("charset", ["; charset=windows-1252", "", "; charset=no-such"])
@pytest.mark.parametrize("kind", ["plain", "html"])
def test_mail_is_decoded_by_its_own_charset_or_a_guess(kind, charset):
    text = "Öffne die Ventile für Müller, prüfe die Behälter"
    body = f'<meta charset="utf-8"><p>{text}' if kind == "html" else text
    message = f"Subject: Pumpe\r\nContent-Type: text/{kind}{charset}\r\n\r\n{body}\r\n".encode("cp1252")
    assert outline(read_file(message, "a.eml")) == [("Pumpe", text)]
    box = read_file(b"From a@b Mon\r\n" + message + b"\r\nFrom c@d Tue\r\n" + message, "a.mbox")
    assert [section.headings for section in box.sections] == [("a", "Pumpe")] * 2


def test_mail_with_a_damaged_address_or_many():
    receivers = ", ".join(f"person{number}@example.org" for number in range(99))
    for sender in ("Ann <", "ann@", "ann@[1.2"):
        file = read_file(f"from: {sender}\nTo: {receivers}\nSubject: Pump\n\nIt pumps.\n".encode(), "a.eml")
        assert file.text.split() == ["From:", *sender.split(), "To:", *receivers.split(), "It", "pumps."]
        assert file.fields == {"from": sender}


def test_rtf_is_skipped_and_says_why(tmp_path):
    for name in ("a.rtf", "b"):
        (tmp_path / name).write_bytes(rb"{\rtf1 text}")
    found = find_files(tmp_path)
    assert not found.kinds and all(reason.startswith("RTF is not read; save") for reason in found.skipped.values())
    with pytest.raises(UnreadableFileError, match="RTF"):
        read_file(rb"{\rtf1 text}", "a.rtf")


def test_rst_without_a_title_or_with_a_line_without_end():
    assert outline(read_file(b"One `two |three| four_.", "a.rst")) == [("a", "One `two |three| four_.")]
    assert read_file(b"`a " * 20_000, "a.rst").text == "`a " * 20_000


SHAPES = [
    *(("a.tex", shape) for shape in ("\\begin{verbatim}", "\\section[", "\\emph{", "\\item[", "\\cite[", "{")),
    *(("a.adoc", shape) for shape in ("link:", "<<a", "|===\n|a\n", "----\n", "= a\n", "* a\n", "[a]\n")),
    *(("a.rst", shape) for shape in (":a", "`a", "* a\n\n", "a\n=\n\n", ".. a::\n", "|a", "::\n\n", "a:: b\n")),
    *(("a.eml", shape) for shape in ("A: b\n", "From a\n", "=?utf-8?q?", "Message-ID: <", "\n")),
    *(("a.ipynb", shape) for shape in ("[", '{"cells":', "`")),
    *(("a", shape) for shape in ("A: b\n", "A: b\n c\n", "From ")),
]
REPEATED = [
    ("a.html", b"<p>a" + b" " * 150_000 + b"b"),
    ("a.html", b"<pre>a" + b"\n " * 80_000 + b"b</pre>"),
    ("a.html", b"<table><tr><td>a" + b"\t" * 150_000 + b"b</table>"),
    ("a.md", b"<!--a-->" * 40 + b"b"),
    ("a.md", b"<a " + b"'" * 80_000 + b"b"),
    ("a.md", b"# a" + b" " * 80_000 + b"b\nc"),
    ("a.md", b"# a" + "§".encode() * 80_000 + b"b\nc"),
    ("a.pdf", (ODD / "long.pdf").read_bytes()),
    ("a.txt", "😀".encode() * 8_000),
    ("a.txt", b"word " * 20_000),
    ("a.txt", b"a" * 100_000),
    ("a.txt", b"a(1)" + b" " * 350 + b"b\n" + b"a(1)" + b"  c" * 100_000),
    ("a.txt", b"-" * 20_000 + b"a-" * 10_000 + b"\nb"),
    ("a.csv", b"a," * 5_000 + b"b\n" + b"c\n" * 5_000),
    ("a", b"<!--a-->" * 40 + b"b"),
    ("a.html", b"<ol start=999999999>" + b"<li>a" * 10_000),
    ("a.html", b"<table><tr>" + b"<td colspan=1000>a" * 4_000),
    ("a.html", b"<table>" + b"<tr><td rowspan=65534 colspan=99>a" * 2_000),
    ("a.html", b"<table><thead>" + b"<tr><td>a</td></tr>" * 4_000),
    ("a.html", b"<h2>a</h2>" * 5_000 + b"b"),
    ("a.md", b"# " + b"a b " * 5_000 + b"\n" + b"## c\n" * 3_000 + b"d"),
    ("a.txt", "\u201c".encode() * 40_000),
    ("a.txt", b"`" * 60_000),
    *((name, (shape * (15_000 // len(shape))).encode()) for name, shape in SHAPES),
]


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "data"), REPEATED, ids=lambda value: f"{value[:20]!r}")
def test_what_is_repeated_takes_no_longer_than_other_text(name, data):
    try:
        file = read_file(data, name)
    except UnreadableFileError as error:
        assert "seconds" not in str(error)
        return
    size = max(len(data), 40_000)  # a PDF is packed
    chunks = chunk_file(name, file, corag.tokens())
    assert len(file.text) <= 4 * size and sum(len(str(chunk)) for chunk in chunks) <= 40 * size
