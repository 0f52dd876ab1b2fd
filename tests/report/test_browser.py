"""The page in a real browser: no error, every tab and filter works, hostile texts stay texts, on a phone too, and
nothing leaves the machine."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gar.models.embedded import embedded_path
from gar.records import RunFolder
from gar.report import ReportOptions
from gar.report.build import write_report
from gar.types import Status
from tests.report.runs import PROBLEMS, make_run, rollout, sample, wrong
from tests.support.runs import relist, write_samples

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")
from selenium.webdriver.common.by import By  # noqa: E402 - skipped above without selenium
from selenium.webdriver.common.keys import Keys  # noqa: E402 - the same

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
HOSTILE = "</script><script>document.title = 'gone'</script></textarea><img src=x onerror=\"document.title='gone'\">"
RIGHT_TO_LEFT = "\u202eשלום עולם, التحية " * 20
LONG = "word " * 20_000
FORMULAS = r"Take $\frac{1}{2}$ of \[ \sum_{i=1}^{n} i \] so \boxed{7}, which costs $5 and $6."
TABS = ("summary", "curves", "problems", "rollouts", "runs", "settings", "definitions")


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Any]:
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("no chromium and chromedriver on the PATH: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    os.environ["SE_AVOID_STATS"] = "true"
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """Two runs. The first has odd responses and evaluation samples, the name of the second is HTML."""
    folder = tmp_path_factory.mktemp("page")
    odd = [
        rollout(1, 0, 0, response=HOSTILE, prompt=HOSTILE, problem_id=HOSTILE, answer=HOSTILE, alignment=0.9),
        rollout(1, 0, 1, response=LONG, alignment=-0.5),
        wrong(1, 0, 2, response=RIGHT_TO_LEFT),
        wrong(1, 0, 3, response=FORMULAS),
    ]
    usual = {step: [rollout(step, g, 0) for g in range(60)] + [wrong(step, g, 1) for g in range(60)] for step in (2, 3)}
    runs = [
        make_run(folder, "first", rollouts={1: odd, **usual}),
        make_run(folder, HOSTILE.replace("/", "|")[:80], settings={"method": "grpo"}, rollouts={}),
    ]
    wrong_before = {"status": Status.WRONG, "verified": False, "response": "2+2=5"}
    write_samples(RunFolder(runs[0]), "before", [sample(p, i, **wrong_before) for p in (0, 1) for i in (0, 1)])
    write_samples(RunFolder(runs[0]), "after", [sample(p, i) for p in (0, 1) for i in (0, 1)])
    relist(runs[0])
    write_report(runs, folder / "page.html")
    return folder / "page.html"


@pytest.fixture
def opened(browser, page) -> Iterator[Any]:
    """The page, freshly loaded. No test may leave a message in the console."""
    size(browser, 1280, 900)
    visit(browser, page)
    yield browser
    assert browser.get_log("browser") == []
    assert "gone" not in browser.title


def visit(browser, address: Path | str) -> None:
    """Load a page as from a link, not as a jump inside the page that is open."""
    browser.get("about:blank")
    browser.get(address.as_uri() if isinstance(address, Path) else address)


def size(browser, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def go(browser, tab: str) -> Any:
    browser.find_element(By.ID, f"tab-{tab}").click()
    return browser.find_element(By.ID, f"panel-{tab}")


def choose(browser, name: str, value: str) -> None:
    """Set a filter as a user does: the event included."""
    element = browser.find_element(By.CSS_SELECTOR, f"[data-filter={name}]")
    if element.tag_name == "select":
        element.find_element(By.CSS_SELECTOR, f"option[value='{value}']").click()
    else:
        element.clear()
        element.send_keys(value)


def count(browser) -> int:
    return int(browser.find_element(By.ID, "count").text.split(" of ")[0].replace(",", ""))


def items(browser) -> list[Any]:
    return browser.find_elements(By.CSS_SELECTOR, ".item")


def response_text(browser) -> str:
    return browser.find_elements(By.CSS_SELECTOR, ".texts .text")[1].get_property("textContent")


def test_every_filter_filters(opened):
    go(opened, "rollouts")
    choose(opened, "from", "training")
    assert (count(opened), len(items(opened))) == (244, 100)
    opened.find_element(By.CSS_SELECTOR, ".more").click()
    assert len(items(opened)) == 200
    for name, value, expected in (
        ("order", "low", 244), ("step", "2", 120), ("verdict", "wrong", 60), ("step", "", 122), ("verdict", "", 244),
        ("low", "0.5", 1), ("low", "-1", 122), ("high", "0", 1), ("high", "1", 122), ("query", "WORD WORD", 1),
        ("query", "nowhere to be found", 0), ("query", " ", 122), ("run", "1", 0),
    ):  # fmt: skip
        choose(opened, name, value)
        assert count(opened) == expected, (name, value)
        if (name, value) == ("high", "0"):
            assert response_text(opened) == LONG
            assert "−0.5" in items(opened)[0].text
    assert "No rollout matches these filters." in opened.find_element(By.ID, "panel-rollouts").text


def test_odd_responses_are_shown_as_text(opened):
    go(opened, "rollouts")
    for index, text in enumerate((HOSTILE, LONG, RIGHT_TO_LEFT, FORMULAS)):
        items(opened)[index].click()
        assert response_text(opened) == text
    assert not opened.find_elements(By.CSS_SELECTOR, "#panel-rollouts img, #panel-rollouts script")
    loaded = opened.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert not [name for name in loaded if not name.startswith("data:")]  # nothing leaves the file


# Long names in the list end in an ellipsis.
OFF_SCREEN = """
return [...document.querySelectorAll('body *:not(.item *)')].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width && element.checkVisibility() && (box.left < -1 || box.right > innerWidth + 1);
}).map((element) => element.outerHTML.slice(0, 80))
"""


def test_nothing_is_off_the_screen_of_a_phone(opened):
    size(opened, 390, 844)
    for tab in TABS:
        assert go(opened, tab).text.strip()
        assert opened.execute_script(OFF_SCREEN) == [], tab
        assert opened.execute_script("return document.documentElement.scrollWidth") <= 390, tab
    go(opened, "rollouts")
    for item in items(opened)[:4]:
        item.click()
        assert opened.execute_script("return document.documentElement.scrollWidth") <= 390


def test_the_keyboard_alone_reaches_everything(opened):
    def focused() -> Any:
        return opened.switch_to.active_element

    def tab_to(role: str) -> None:
        for _ in range(20):
            focused().send_keys(Keys.TAB)
            if focused().get_attribute("role") == role:
                return

    tab_to("tab")
    for tab in TABS[1:4]:
        focused().send_keys(Keys.ARROW_RIGHT)
        assert focused().get_attribute("id") == f"tab-{tab}"
    tab_to("listbox")
    focused().send_keys(Keys.ARROW_DOWN)
    assert response_text(opened) == LONG
    focused().send_keys(Keys.END)
    assert opened.find_elements(By.CSS_SELECTOR, ".item")[-1].get_attribute("aria-selected") == "true"
    focused().send_keys(Keys.HOME)
    assert response_text(opened) == HOSTILE


def test_the_policy_stops_injected_scripts(browser, page):
    browser.get(page.as_uri())
    with pytest.raises(Exception, match="TrustedHTML"):
        browser.execute_script("document.body.innerHTML = '<b>no</b>'")
    browser.get_log("browser")


def test_token_shares_are_shaded_and_the_numbers_of_one_run_fit_a_phone(browser, tmp_path):
    run = make_run(tmp_path, rollouts={1: [rollout(1, 0, 0)]})
    shutil.copytree(embedded_path(), run / "model")
    relist(run)
    write_report([run], tmp_path / "page.html", ReportOptions(token_shares=True))
    browser.get((tmp_path / "page.html").as_uri())
    go(browser, "rollouts")
    tokens = browser.find_elements(By.CSS_SELECTOR, ".text .token")
    assert len(tokens) > 3
    assert any(token.value_of_css_property("background-color") != "rgba(0, 0, 0, 0)" for token in tokens)
    assert "sum to" in browser.find_element(By.CSS_SELECTOR, ".scale").text
    size(browser, 390, 844)
    assert "25.0%" in go(browser, "summary").find_element(By.CSS_SELECTOR, ".tiles").text
    assert browser.execute_script(OFF_SCREEN) == []
    assert browser.get_log("browser") == []


SHOWN = "[role=tabpanel]:not([hidden])"


def chart(browser, number: int = 0) -> Any:
    return browser.find_elements(By.CSS_SELECTOR, f"{SHOWN} .chart svg")[number]


def steps_read(browser) -> set[str]:
    readings = [each.text for each in browser.find_elements(By.CSS_SELECTOR, f"{SHOWN} .read")]
    assert len(readings) >= 4
    return {text.partition(":")[0] for text in readings}


def test_curves_share_a_cursor_zoom_and_lead_to_rollouts(opened):
    go(opened, "curves")
    picture = chart(opened)
    opened.execute_script("arguments[0].focus()", picture)
    picture.send_keys(Keys.HOME, Keys.ARROW_RIGHT)
    assert steps_read(opened) == {"step 2"}
    pointer, width = webdriver.ActionChains(opened), picture.size["width"]
    pointer.move_to_element_with_offset(picture, int(-0.1 * width), 0).click_and_hold()
    pointer.move_to_element_with_offset(picture, int(0.25 * width), 0).release().perform()
    assert "from=3&to=5" in opened.current_url
    opened.refresh()
    chart(opened).send_keys(Keys.HOME)
    assert steps_read(opened) == {"step 3"}
    opened.find_element(By.CSS_SELECTOR, ".zoom button").click()
    assert "from" not in opened.current_url
    pointer.move_to_element_with_offset(chart(opened, 1), width // 2 - 14, 0).click().perform()
    assert opened.current_url.endswith("#rollouts?step=6")
    assert count(opened) == 120  # of step 3, the nearest
    opened.back()
    assert chart(opened).is_displayed()


def test_a_link_opens_one_rollout_with_its_filters(opened, page):
    go(opened, "rollouts")
    choose(opened, "step", "3")
    choose(opened, "verdict", "wrong")
    items(opened)[1].click()
    link, heading = opened.current_url, opened.find_element(By.CSS_SELECTOR, ".detail h2").text
    assert "step 3, response 2" in heading
    visit(opened, link)
    assert opened.find_element(By.CSS_SELECTOR, ".detail h2").text == heading
    assert count(opened) == 60
    assert items(opened)[1].get_attribute("aria-selected") == "true"
    go(opened, "curves")
    go(opened, "rollouts")
    assert count(opened) == 60
    visit(opened, f"{page.as_uri()}#rollouts?group=0:99:0&response=1")
    assert "not among those drawn for this page" in opened.find_element(By.CSS_SELECTOR, ".detail").text


def test_evaluation_samples_face_each_other_before_and_after(opened):
    go(opened, "rollouts")
    choose(opened, "from", "test, after")
    assert count(opened) == 4
    choose(opened, "verdict", "wrong")
    assert count(opened) == 0
    choose(opened, "from", "test, before")
    assert count(opened) == 4
    headings = [each.text for each in opened.find_elements(By.CSS_SELECTOR, ".texts h3")]
    assert headings[1:3] == ["Response before training: wrong", "Response after training: right"]
    assert response_text(opened) == "2+2=5"
    opened.find_elements(By.CSS_SELECTOR, ".mates")[1].find_elements(By.TAG_NAME, "button")[1].click()
    assert "test, after training, response 2" in opened.find_element(By.CSS_SELECTOR, ".detail h2").text


def test_tables_sort_and_the_table_of_runs_is_searched(opened):
    def names() -> list[str]:
        return [row.text for row in opened.find_elements(By.CSS_SELECTOR, "#panel-runs tbody td:first-child")]

    go(opened, "runs")
    assert names()[0] == "first"
    for expected in ("ascending", "descending"):
        opened.find_element(By.CSS_SELECTOR, "#panel-runs th:first-child .sort").click()
        assert opened.find_element(By.CSS_SELECTOR, "#panel-runs th").get_attribute("aria-sort") == expected
    assert names() == sorted(names(), reverse=True) != [names()[1], names()[0]]
    opened.refresh()
    assert opened.find_element(By.CSS_SELECTOR, "#panel-runs th").get_attribute("aria-sort") == "descending"
    opened.find_element(By.CSS_SELECTOR, "[data-filter=q]").send_keys("GAR-")
    assert names() == ["first"]


def test_a_response_shows_its_reward_and_the_words_that_the_expert_solution_lacks(browser, tmp_path):
    expert = PROBLEMS[10].anchors[0].text
    group = [
        rollout(1, 0, 0, response=expert, alignment=1.0, bonus=0.25, reward=1.25),
        rollout(1, 0, 1, response=f"well {expert}", alignment=0.0, bonus=0.0, reward=1.0),
        wrong(1, 0, 2, answer="77"),
    ]
    write_report([make_run(tmp_path, rollouts={1: group})], tmp_path / "page.html")
    size(browser, 1280, 900)
    visit(browser, tmp_path / "page.html")
    go(browser, "rollouts")
    assert [item.text.splitlines()[0] for item in items(browser)] == ["1 right", "2 right", "3 wrong: 77"]
    reason = browser.find_element(By.CSS_SELECTOR, ".reason").text
    assert reason == "reward 1.25 = 1 (right) + 0.5 × (1.00 − 0.50, the mean of the group's 2 right ones)"
    assert not browser.find_elements(By.CSS_SELECTOR, "mark")
    items(browser)[1].click()
    assert [mark.text for mark in browser.find_elements(By.CSS_SELECTOR, "mark")] == ["well"]
    assert "The bonus: In 1 groups" in browser.find_element(By.ID, "panel-rollouts").text
    assert browser.get_log("browser") == []


def test_problems_link_to_their_samples(opened):
    panel = go(opened, "problems")
    assert "first" not in panel.text
    assert ", 8 problems" in panel.text
    choose_in(panel, "never solved")
    assert len(panel.find_elements(By.CSS_SELECTOR, "tbody tr")) == panel.text.count("never solved")


def choose_in(panel: Any, words: str) -> None:
    panel.find_element(By.CSS_SELECTOR, "[data-filter=q]").send_keys(words)


def test_tables_of_one_run_fit_a_screen(browser, tmp_path):
    write_report([make_run(tmp_path)], tmp_path / "page.html")
    visit(browser, tmp_path / "page.html")
    too_wide = "return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth).length"
    for width in (1400, 1300, 900):
        size(browser, width, 900)
        for tab in ("summary", "runs"):
            go(browser, tab)
            assert browser.execute_script(too_wide) == 0, (width, tab)
