"""benchmarks/report_page.py shows a small run."""

import shutil

import pytest

pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install selenium")


@pytest.mark.browser
def test_report_page_measures(monkeypatch, capsys):
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("no chromium and chromedriver on the PATH: apt-get install chromium chromium-driver")
    import benchmarks.report_page as benchmark

    monkeypatch.setenv("SE_AVOID_STATS", "true")
    for name, number in (("STEPS", 2), ("GROUPS", 3), ("SAMPLES", 2)):
        monkeypatch.setattr(benchmark, name, number)
    benchmark.main()
    printed = capsys.readouterr().out
    assert "12 responses, file of " in printed
    assert [line.split("  ")[0] for line in printed.splitlines()[2:]] == ["file, summary", "file, rollouts"]
