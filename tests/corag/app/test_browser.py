"""The page in a real browser, with texts that try to be more than text."""

import re
import shutil
import threading

import pytest

from corag.app.server import make_app
from corag.index import ChunkIndex
from corag.types import Answer, Chunk
from tests.corag.app.worlds import FirstWords, make_workbench, serving
from tests.experiments.worlds import write_folder
from tests.fakes import HashEmbedder

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed; on Debian: apt-get install chromium"),
    # Playwright leaves the sockets of a stopped browser to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NASTY = "<img src=x onerror=alert(1)><script>alert(2)</script>"
PASSAGES = {
    "red": "The red valve opens first. It is as wide as a hand.",
    "nasty": f"{NASTY} The blue pump starts then, \x1b[31m and \u202e it hums.",
    "hebrew": "המשאבה נפתחת ראשונה. The valve is red.",
    "long": "Every valve of the red plant is tested twice a year by two people. " * 3,
}
QUESTIONS = [f"Which valve is red? {NASTY}", "What starts after the valve? \x07"]


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A data folder of four passages with two questions, and an index of the same."""
    rows = [{"id": name, "title": f"<b>{name}</b>", "text": text} for name, text in PASSAGES.items()]
    asked = [
        {"id": str(place), "question": question, "answers": ["<u>red</u>"], "gold": ["red"], "candidates": [*PASSAGES]}
        for place, question in enumerate(QUESTIONS)
    ]
    folder = write_folder(tmp_path_factory.mktemp("nasty"), rows, asked)
    index = ChunkIndex.build(folder / "index", [Chunk(name, text) for name, text in PASSAGES.items()], HashEmbedder())
    return folder, index


@pytest.fixture(scope="module")
def served(parts):
    """The address of a page over these."""
    with serving(make_app(make_workbench(*parts, budget=80))) as url:
        yield url


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def opened(browser, url, events, **settings):
    """A page that has answered its first question; what should not happen is noted in `events`."""
    page = browser.new_context(**settings).new_page()
    page.on("dialog", lambda dialog: (events.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: events.append(f"error {error}"))
    page.on("console", lambda said: events.append(f"console {said.text}") if said.type == "error" else None)
    page.on("request", lambda request: None if request.url.startswith(url) else events.append(f"asked {request.url}"))
    page.goto(url)
    page.locator(".said:not(.waiting)").wait_for()
    return page


def unfold(page):
    """Open the parts of the page that are folded."""
    for name in ("search", "candidates", "methods", "agent"):
        page.locator(f"#{name} > summary").click()
    page.locator("#agent-says p").first.wait_for()


def test_a_person_asks_looks_and_turns_the_dials(browser, served):
    events = []
    page = opened(browser, served, events, viewport={"width": 1400, "height": 900})
    # What is shown is text: of the passages no element came to be.
    assert NASTY in page.locator("#question").input_value()
    assert page.locator("#found img, #found script, #found u").count() == 0
    # Answer, context and what was left out are on one screen; the rest is folded.
    for name in ("answer", "prompt", "out"):
        box = page.locator(f"#{name}").bounding_box()
        assert box["y"] + box["height"] <= 900
    assert page.locator("#left-out summary").count() + page.locator("#context .chunk").count() == len(PASSAGES)
    assert not page.locator("#tree").is_visible()
    unfold(page)
    assert "\\x1b[31m and \\u202e it hums" in page.locator("#items").inner_text()
    # The tree: from the first iteration to the last; a cell tells its order, and its utility adds up.
    cells = page.locator("#tree [role=treeitem]")
    grown = cells.count()
    page.locator("#step").fill("1")
    assert cells.count() < grown
    page.locator("#tree [data-node='1']").click()
    terms = page.locator("#node dl.terms dd").all_inner_texts()
    mean, bonus, charge, utility = map(float, terms[-4:])
    assert utility == pytest.approx(mean + bonus - charge, abs=2e-3)
    assert page.locator("#node details[open] p.text").inner_text() in [text.strip() for text in PASSAGES.values()]
    # The keyboard: up to the empty order, down to its first child, to the end of the row.
    for key in ("ArrowUp", "ArrowDown", "End"):
        page.keyboard.press(key)
    focused = page.locator(":focus")
    assert focused.get_attribute("aria-level") == "2"
    assert focused.get_attribute("aria-posinset") == focused.get_attribute("aria-setsize")
    # A smaller budget, chosen with the keyboard, changes the selection at once.
    tokens = page.locator("#meter b").inner_text()
    page.locator("#budget").focus()
    page.keyboard.press("Home")
    page.locator("#meter b", has_text="of 16 tokens").wait_for()
    assert page.locator("#meter b").inner_text() != tokens
    page.locator("#items .tag.out", has_text="too large").first.wait_for()
    # The page says that this is not what `corag ask` has, and its address holds it.
    assert "corag ask has budget 80 tokens" in page.locator("#changed").inner_text()
    page.reload()
    page.locator("#meter b", has_text="of 16 tokens").wait_for()
    unfold(page)
    assert NASTY in page.locator("#question").input_value()
    # All methods; one of them says why it cannot.
    page.locator("#compare").click()
    page.get_by_text(re.compile("^4 methods at 16 tokens")).wait_for()
    assert page.locator("#compared tbody tr").count() == 5
    assert "max_orders" in page.locator("#compared").inner_text()
    # The second question of the data, whose control character is shown, and one of the person's own.
    page.locator("#picker summary").click()
    page.locator("#questions button", has_text="\\x07").click()
    page.locator("#step-says").wait_for()
    page.locator("#question").fill("Is the plant red?")
    page.keyboard.press("Enter")
    page.locator("#said .said:not(.waiting)").wait_for()
    page.locator("#candidates-say", has_text="4 chunks").wait_for()
    page.locator("#items .tag.evidence").first.wait_for(state="detached")
    # A question that the reader refuses is searched all the same.
    page.locator("#question").fill("Is the plant unreadable?")
    page.keyboard.press("Enter")
    page.locator("#said", has_text="leaves no room").wait_for()
    assert all("400" in event for event in events)  # a streamed refusal is none
    events.clear()
    # Too long a question is refused here already.
    page.locator("#question").fill("a" * 5000)
    page.locator("#go").click()
    assert "at most 4,000" in page.locator("#error").inner_text()
    assert events == []
    page.context.close()


def test_everybody_can_use_it_wide_and_narrow_light_and_dark(browser, served):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    events = []
    # Injecting axe is what the page's policy forbids.
    page = opened(browser, served, events, viewport={"width": 1400, "height": 900}, bypass_csp=True)
    unfold(page)
    page.locator("#compare").click()
    page.get_by_text(re.compile("^4 methods at")).wait_for()
    for scheme, width in (("light", 1400), ("dark", 400)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("scrollTo(0, 0)")
        answer, sliders = (page.locator(name).bounding_box() for name in ("#answer", "#settings"))
        assert answer["y"] < sliders["y"]
        found = axe.run(page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert events == []
    page.context.close()


class SlowWriter(FirstWords):
    """Writes one piece, and the next when it is told to."""

    def __init__(self):
        self.told = threading.Event()

    def stream(self, query, context):
        yield f"{NASTY} the valve "
        assert self.told.wait(timeout=20)
        yield "is red."
        return Answer("the valve is red.", None)


def test_what_a_language_model_writes_appears_as_it_is_written(browser, parts):
    events, writer = [], SlowWriter()
    with serving(make_app(make_workbench(*parts, budget=80, reader=writer))) as url:
        page = browser.new_context().new_page()
        page.on("dialog", lambda dialog: (events.append(dialog.message), dialog.dismiss()))
        page.on("pageerror", lambda error: events.append(str(error)))
        page.goto(url)
        page.locator("#said .said.waiting", has_text=f"{NASTY} the valve").wait_for()
        writer.told.set()
        page.locator("#said .said:not(.waiting)", has_text="the valve is red.").wait_for()
        page.context.close()
    assert events == []
