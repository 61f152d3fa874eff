"""The report in a real browser: narrow and wide, by keyboard, without a network."""

from __future__ import annotations

import shutil

import pytest

from pipeline.comparison.report import write_comparison
from tests.comparison.results import write_results

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if BROWSER is None:
        pytest.skip("no Chromium on the path")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = write_results(tmp_path_factory.mktemp("report"))
    write_comparison(folder, ("bit_xor",), ("b",))
    return (folder / "report/index.html").as_uri()


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_fits_is_quiet_and_can_be_read_by_keyboard_and_screen_reader(browser, report, width):
    page = browser.new_page(viewport={"width": width, "height": 900})
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report)
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [report]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for wide in page.locator(".scroll").all():
        box = wide.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    regions = page.locator(".scroll").count()
    reached = set()
    for _ in range(regions):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('.scroll')].indexOf(document.activeElement)"))
    assert reached == set(range(regions))
    assert page.get_by_role("img").count() == 6
    assert all(name for name in page.get_by_role("img").evaluate_all("all => all.map(e => e.ariaLabel)"))
    assert page.get_by_role("table", name="Test accuracy and cost of each method").count() == 1
    assert page.get_by_role("rowheader", name="bit_xor").count() >= 3
    assert page.get_by_role("heading", level=1).count() == 1
    page.close()
