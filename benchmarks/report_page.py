"""Time to the first view of a report on a run with 50,000 responses, in headless Chromium.

python -m benchmarks.report_page
"""

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from gar.records import RunFolder
from gar.report.build import write_report
from tests.report.runs import make_run, rollout, wrong

STEPS, GROUPS, SAMPLES = 125, 50, 8
WORDS = ("step", "so", "$x^2$", "then", "we", "add", "the", "answer", "is", "forty", r"$\frac{1}{2}$")


def main() -> None:
    """Make the run, show it three times each way, and print the best."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), "large", steps=STEPS, rollouts={})
        stream = random.Random(0)
        for step in range(1, STEPS + 1):
            RunFolder(run).write_rollouts(
                step,
                [
                    stream.choice((rollout, wrong))(step, group, i, response=" ".join(stream.choices(WORDS, k=300)))
                    for group in range(GROUPS)
                    for i in range(SAMPLES)
                ],
            )
        page = Path(folder) / "page.html"
        report = write_report([run], page)
        print(report.rollouts.notes[0])
        print(f"{STEPS * GROUPS * SAMPLES:,} responses, file of {page.stat().st_size / 1e6:.1f} MB")
        browser = _browser(Path(folder) / "profile")
        try:
            print(f"file, summary   {_best(lambda: _seconds(browser, page.as_uri(), '.verdict')):.2f} s")
            print(
                f"file, rollouts  {_best(lambda: _seconds(browser, f'{page.as_uri()}#rollouts', '.detail h2')):.2f} s"
            )
        finally:
            browser.quit()


def _browser(profile: Path) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def _best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(3))


def _seconds(browser: webdriver.Chrome, address: str, selector: str) -> float:
    """Seconds from opening the address until an element is shown."""
    browser.get("about:blank")
    start = time.perf_counter()
    browser.get(address)
    WebDriverWait(browser, 60, poll_frequency=0.02).until(
        lambda driver: driver.find_elements(By.CSS_SELECTOR, selector)
    )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
