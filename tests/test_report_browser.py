"""report.html in a real browser: it draws, answers to the pointer, copies, changes its scheme, and fits a phone."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from reported import ReportedJob

from placer.reports.page import page
from placer.reports.report import make_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")
PATIENCE_S = 60
"""A loaded machine is slow; nothing here waits that long on an idle one."""
pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="needs Chromium and its driver (`make browser` installs them)"
)


@pytest.fixture(scope="module")
def report_path(job_reported: ReportedJob) -> Path:
    path = job_reported.folder / "report.html"
    report = make_report(
        job_reported.placement,
        profile=job_reported.profile,
        trace=job_reported.trace,
        model=job_reported.model,
    )
    path.write_text(page(report), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (
        "headless=new",
        "disable-gpu",
        "no-first-run",
        "disable-background-networking",
        "disable-sync",
    ):
        options.add_argument(f"--{flag}")
    options.add_argument("--disable-component-update")
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('browser')}")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser: Any, report_path: Path) -> Any:
    """The page, drawn, on a desktop in the light scheme."""
    return open_page(browser, report_path, width=1100, scheme="light")


def open_page(browser: Any, path: Path, *, width: int, scheme: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get(path.as_uri())
    WebDriverWait(browser, PATIENCE_S).until(
        lambda page: page.execute_script("return document.documentElement.dataset.drawn") == "yes"
    )
    return browser


def background(browser: Any) -> str:
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_it_draws_every_figure_without_a_word_of_complaint(opened: Any) -> None:
    assert opened.execute_script("return document.querySelectorAll('.chart .main-svg').length") >= 6
    assert opened.execute_script("return document.getElementById('no-figures').hidden")
    assert "alert" in opened.title
    assert "experts hot" in opened.find_element("id", "verdict").text
    # A refused request or script would be said here.
    assert opened.get_log("browser") == []
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0


def test_no_table_is_cut_off_on_a_desktop(opened: Any) -> None:
    wide = "[...document.querySelectorAll('.wide')].filter(each => each.scrollWidth > each.clientWidth)"
    assert opened.execute_script(f"return {wide}.map(each => each.firstElementChild.id)") == []
    assert opened.execute_script("return document.querySelectorAll('.wide').length") >= 5


def test_pointing_at_an_expert_shows_its_place_and_value(opened: Any) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    plot = opened.find_element("css selector", "#heat-map .nsewdrag")
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    ActionChains(opened).move_to_element_with_offset(plot, 5, 5).perform()
    shown = WebDriverWait(opened, PATIENCE_S).until(
        lambda page: page.execute_script(
            "return document.querySelector('#heat-map .hoverlayer .hovertext')?.textContent"
        )
    )
    assert "layer " in shown
    assert "being hot saves" in shown


def test_a_click_in_the_legend_hides_a_line(opened: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    shown = "return document.querySelectorAll('#layers .scatterlayer .trace').length"
    before = opened.execute_script(shown)
    entries = opened.find_elements("css selector", "#layers .legend .traces")
    (entry,) = [each for each in entries if each.text == "frequency"]
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", entry)
    entry.find_element("css selector", ".legendtoggle").click()
    WebDriverWait(opened, PATIENCE_S).until(lambda page: page.execute_script(shown) == before - 1)


def test_commands_are_copied_by_their_button(opened: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    runtime = next(
        each
        for each in opened.find_elements("css selector", "details.runtime")
        if each.find_elements("css selector", "button.copy")
    )
    opened.execute_script("arguments[0].open = true", runtime)
    button = runtime.find_element("css selector", "button.copy")
    button.click()
    WebDriverWait(opened, PATIENCE_S).until(lambda _: button.text == "copied")


def test_the_scheme_follows_the_system_until_its_button_is_pressed(browser: Any, report_path: Path) -> None:
    opened = open_page(browser, report_path, width=1100, scheme="dark")
    dark = background(opened)
    label = "return getComputedStyle(document.querySelector('#layers .xtitle')).fill"
    dark_label = opened.execute_script(label)
    opened.find_element("id", "scheme").click()
    light = background(opened)
    assert (dark, light) == ("rgb(20, 23, 27)", "rgb(255, 255, 255)")
    assert opened.execute_script(label) != dark_label
    opened.find_element("id", "scheme").click()
    assert background(opened) == dark


def test_a_phone_needs_no_sideways_scrolling(browser: Any, report_path: Path) -> None:
    opened = open_page(browser, report_path, width=390, scheme="light")
    assert opened.execute_script("return document.documentElement.scrollWidth") <= 390
    wide = opened.execute_script(
        "return [...document.querySelectorAll('.chart .main-svg')]"
        ".filter(svg => svg.getBoundingClientRect().right > 390).length"
    )
    assert wide == 0
