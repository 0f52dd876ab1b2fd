"""paper/analyses/amplification.py shows what a gap between cosines earns; the page has its table."""

from pathlib import Path

import pytest

from paper.analyses import amplification

pytestmark = pytest.mark.paper


def test_the_page_has_the_table_of_the_study():
    page = Path(__file__).parents[2] / "docs" / "how-it-works.md"
    assert amplification.table() in page.read_text(encoding="utf-8")
