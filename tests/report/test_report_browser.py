"""The pages in a real browser: no errors, steps by keys and slider, markup shown as text, narrow screens."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from pairton.evaluation.evaluating import evaluate
from pairton.events import Events
from pairton.events.objects import make_jets, make_met, make_objects
from pairton.formats import create
from pairton.reconstruction.run_settings import RunSettings
from pairton.report.frames import record_answer, record_event
from pairton.report.page import Display, write_report
from pairton.topology import load_topology, parse_topology

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: the pages were not opened in a browser")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="no chromium with chromedriver: the pages were not opened in a browser (apt install chromium-driver)",
)

HOSTILE = "<img src=x onerror='window.broken=1'></script><script>window.broken=1</script>.h5"
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


SHOWN = (  # layers with the particles that are shown
    "[...new Set([...document.querySelectorAll('.pd-layer')].filter(g => g.style.display !== 'none')"
    ".map(g => g.classList[1]).filter(name => name.startsWith('p-')))]"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def show(browser, path, width=1200, height=900):
    """Open a page; it must say nothing on the console and load nothing."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())
    quiet(browser)


def quiet(browser):
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


def text(browser, selector):
    return browser.find_element("css selector", selector).text


def press(browser, key):
    from selenium.webdriver.common.keys import Keys

    browser.find_element("css selector", "body").send_keys(getattr(Keys, key))


def no_overflow(browser):
    return browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")


def painted(browser, path):
    """A screenshot has been drawn on: it has many colours."""
    from matplotlib.image import imread

    browser.save_screenshot(str(path))
    return len(np.unique((imread(path)[::3, ::3, :3] * 15).astype(int).reshape(-1, 3), axis=0))


@pytest.fixture(scope="module")
def page(decays, mass_model_type, tmp_path_factory):
    record = record_event(
        decays(1, seed=7), 0, mass_model_type(strength=0.2), RunSettings("steps"), source="events.h5"
    )
    path = tmp_path_factory.mktemp("page") / "event.html"
    Display(record).save(path)
    return path


def test_arrow_keys_step_through_an_event(browser, page, tmp_path):
    show(browser, page)
    assert text(browser, ".pd h3") == "The answer"  # what a reader came for; the steps are to the left
    for _ in range(3):
        press(browser, "ARROW_LEFT")
    assert text(browser, ".pd h3") == "Step 1 of 3: reveal W"
    masked = "return document.querySelectorAll('.pd-row')[0].querySelectorAll('td[data-value=\"2\"]').length"
    drawn = f"return ({SHOWN}).length"
    assert browser.execute_script(masked) == 2 * 64
    assert browser.execute_script(drawn) == 1  # the choice of the first step
    seen = []
    for _ in range(4):
        press(browser, "ARROW_RIGHT")
        seen.append((text(browser, ".pd h3"), browser.execute_script(masked), browser.execute_script(drawn)))
    assert [title for title, _, _ in seen] == [
        "Step 2 of 3: reveal W",
        "Step 3 of 3: reveal t + t",
        *["The answer"] * 2,
    ]
    assert [count for _, count, _ in seen] == [36 + 60, 48, 0, 0]  # W: a 6 x 6 block; t: all but a 2 x 2, a 4 x 4
    assert [count for _, _, count in seen] == [2, 4, 4, 4]
    press(browser, "ARROW_LEFT")
    assert text(browser, ".pd-count") == "3 / 4"
    assert painted(browser, tmp_path / "event.png") > 20
    quiet(browser)


def test_slider_buttons_candidates_and_truth(browser, page):
    show(browser, page)
    browser.execute_script(
        "const s = document.querySelector('input[type=range]'); s.value = 2; s.dispatchEvent(new Event('input'));"
    )
    assert text(browser, ".pd-count") == "3 / 4"
    back, following = browser.find_elements("css selector", ".pd-controls button")
    following.click()
    assert not following.is_enabled()
    for _ in range(3):
        back.click()
    assert not back.is_enabled()
    rows = browser.find_elements("css selector", ".pd-lower tbody tr[tabindex]")
    chosen = browser.find_elements("css selector", "tr.pd-chosen")
    assert len(rows) == 8
    assert chosen == rows[:1]
    assert re.fullmatch(r"W: \d \d · \d+ GeV", rows[0].find_element("css selector", ".pd-chip").text)
    jets = f"return {SHOWN}"
    before = browser.execute_script(jets)
    browser.execute_script("arguments[0].focus()", rows[1])
    assert browser.execute_script(jets) != before  # the candidate is shown in the plane
    browser.execute_script("arguments[0].blur()", rows[1])
    assert browser.execute_script(jets) == before
    labels = (
        "return [...document.querySelectorAll('.labels')].filter(g => g.style.display !== 'none')"
        ".map(g => g.textContent.trim())"
    )
    assert "t1.W.q" in browser.execute_script(labels)
    browser.find_element("css selector", ".pd-truth input").click()
    assert "t1.W.q" not in browser.execute_script(labels)
    quiet(browser)


def test_a_narrow_screen_needs_no_sideways_scrolling(browser, page, tmp_path):
    show(browser, page, width=360, height=740)
    assert no_overflow(browser)
    smallest = browser.execute_script(
        "return Math.min(...[...document.querySelectorAll('.pd svg text')]"
        ".filter(t => t.getBoundingClientRect().height)"
        ".map(t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))"
    )
    assert smallest > 7  # pixels, after scaling
    assert painted(browser, tmp_path / "narrow.png") > 20


@pytest.mark.parametrize("name", ["hh4b", "tth_allhad", "tttt_allhad"])
def test_other_topologies_and_exact_likelihoods(name, browser, mass_model_type, tmp_path):
    topology = load_topology(name)
    n = len(topology.slots) + 1
    rng = np.random.default_rng(3)
    columns = {"pt": (30, 200), "eta": (-2.4, 2.4), "phi": (-3.14, 3.14), "mass": (3, 20), "btag": (0, 1)}
    jets = make_jets(**{key: [rng.uniform(*bounds, n)] for key, bounds in columns.items()})
    model = mass_model_type(topology, strength=0.1)
    record = record_event(Events(jets, topology), 0, model, RunSettings(max_objects=14))
    Display(record).save(tmp_path / "event.html")
    show(browser, tmp_path / "event.html")
    assert text(browser, ".pd h3") == record.frames[1].title
    for _ in record.frames:
        press(browser, "ARROW_RIGHT")
    assert text(browser, ".pd-count") == f"{len(record.frames)} / {len(record.frames)}"
    assert len(browser.find_elements("css selector", ".pd-row:first-of-type figure")) >= len(topology.types)
    assert not browser.find_elements("css selector", ".pd-truth")
    quiet(browser)


def test_other_kinds_have_marks_and_words_of_their_own(browser, tmp_path):
    tree = {
        "name": "semilep",
        "event": ["t", "tl"],
        "particles": {"t": ["W", "b"], "W": ["q", "q"], "tl": ["b", "l"]},
    }
    topology = parse_topology({**tree, "objects": {"l": "lepton"}, "context": ["met"]})
    rng = np.random.default_rng(3)
    columns = {"pt": (30, 200), "eta": (-2.4, 2.4), "phi": (-3.14, 3.14), "mass": (3, 20)}
    jets, lepton = ({key: [rng.uniform(*bounds, n)] for key, bounds in columns.items()} for n in (4, 1))
    objects = {"jet": make_objects(**jets, btag=[[1, 1, 0, 0]]), "lepton": make_objects(**lepton)}
    events = Events({**objects, "met": make_met([40.0], [1.0])}, topology)
    Display(record_answer(events, 0, np.array([2, 3, 0, 1, 0]))).save(tmp_path / "event.html")
    show(browser, tmp_path / "event.html")
    titles = browser.execute_script(
        "return [...document.querySelectorAll('.pd-object title')].map(t => t.textContent)"
    )
    assert "met 0: pT 40.0 GeV, φ 1.00" in titles  # no η, no mass, no b-tag
    assert any(re.fullmatch(r"lepton 0: pT \S+ GeV, η \S+, φ \S+, mass \S+ GeV", title) for title in titles)
    words = browser.execute_script("return [...document.querySelectorAll('.pd svg text')].map(t => t.textContent)")
    assert {"lepton", "met", "jet, area by pT"} < set(words)
    assert "l0" in text(browser, ".pd-lower")
    quiet(browser)


def test_markup_in_an_event_is_shown_and_never_run(browser, decays, mass_model_type, tmp_path):
    record = record_event(decays(1), 0, mass_model_type(), source=HOSTILE)
    record = replace(record, name=HOSTILE, id=HOSTILE, model=HOSTILE, decoding=HOSTILE, status=HOSTILE)
    record = replace(record, frames=tuple(replace(frame, title=HOSTILE, note=HOSTILE) for frame in record.frames))
    Display(record).save(tmp_path / "event.html")
    show(browser, tmp_path / "event.html")
    press(browser, "ARROW_RIGHT")
    assert browser.execute_script("return window.broken") is None
    assert not browser.find_elements("css selector", "img")
    assert text(browser, ".pd h2") == text(browser, ".pd h3") == HOSTILE
    assert text(browser, ".pd-about").count(HOSTILE) == 5
    frame = tmp_path / "notebook.html"
    frame.write_text(
        f"<!DOCTYPE html><meta charset=utf-8><link rel=icon href=data:,>{Display(record)._repr_html_()}"
    )
    show(browser, frame)
    browser.switch_to.frame(0)
    assert text(browser, ".pd h2") == HOSTILE
    assert browser.execute_script("return window.broken") is None
    browser.switch_to.default_content()


def test_the_report_in_a_browser(browser, decays, mass_model_type, tmp_path):
    folder = tmp_path / "<b>in"
    folder.mkdir()
    path = folder / "<img src=x onerror=window.broken=1>.h5"
    events = decays(150, extra=3, floor=15.0)
    writer = create(path, events.topology)
    writer.write(events)
    writer.close()
    model = mass_model_type(name="<img src=x onerror=window.broken=1>", takes_tokens=True, decoding="steps")
    decodings = ["steps", "one_shot"]
    result = evaluate([str(path)], [model], decodings=decodings, baselines=["chi2"])
    report = tmp_path / "report.html"
    write_report(report, result, command=f"pairton evaluate --map 'pt={HOSTILE}'")
    show(browser, report)
    assert browser.execute_script("return window.broken") is None
    assert not browser.find_elements("css selector", "img, b")
    assert HOSTILE in text(browser, "header")
    heights = browser.execute_script(
        "return [...document.querySelectorAll('.figures svg')].map(s => s.getBoundingClientRect().height)"
    )
    assert len(heights) == 9
    assert min(heights) > 150
    buttons = browser.find_elements("css selector", ".thumbs button")
    assert len(buttons) == 9
    browser.execute_script("arguments[0].click()", buttons[4])
    assert buttons[4].get_attribute("aria-pressed") == "true"
    assert text(browser, "#event h3") == text(browser, ".thumbs button[aria-pressed=true] strong")
    assert "✗ wrong" in text(browser, "#event .pd-verdict")
    assert text(browser, "#event .pd-count") == "4 / 4"
    browser.execute_script("document.querySelector('#event .pd-controls button').click()")
    assert text(browser, "#event .pd-count") == "3 / 4"
    quiet(browser)
    assert painted(browser, tmp_path / "report.png") > 20
    show(browser, report, width=360, height=740)
    assert no_overflow(browser)
