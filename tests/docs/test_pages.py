"""What the pages say: quoted errors exist, examples run, links lead somewhere, and the site has every page."""

import ast
import doctest
import importlib
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, ROOT, formulas, python_blocks

_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
_QUOTES = re.findall(r"^```text\n(.*?)\n```$", (DOCS / "errors.md").read_text(), re.MULTILINE | re.DOTALL)
FORMULAS = runpy.run_path(str(DOCS / "site" / "formulas.py"))
ENGINES = [ROOT / "src/gar/step.py", *sorted((ROOT / "src/gar/integrations").rglob("*.py"))]


def templates() -> list[str]:
    """Every text in the source, with `…` for what an f-string puts in."""
    texts = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return texts


@pytest.fixture(scope="module")
def source() -> str:
    return "\n".join(templates())


@pytest.mark.parametrize("quote", _QUOTES)
def test_quoted_errors_stand_in_the_source(quote, source):
    assert len(quote.replace("…", "").split()) > 2
    assert quote in source


def slug(heading: str) -> str:
    """The anchor that the site and GitHub make of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    for link in _LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page.name}: {link}"


def test_the_site_shows_every_page_once():
    nav = yaml.safe_load(re.sub(r"(?s).*?(\nnav:.*?\n)\n.*", r"\1", (ROOT / "mkdocs.yml").read_text()))["nav"]

    def pages(entry) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for each in (entry.values() if isinstance(entry, dict) else entry) for page in pages(each)]

    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"log.md"}  # for contributors
    assert sorted(pages(nav)) == sorted(written)
    assert len(written) <= 24


def test_the_page_of_the_settings_is_that_of_the_source():
    page = runpy.run_path(str(DOCS / "site" / "settings.py"))["page"]()
    assert page == (DOCS / "configuration.md").read_text(), "python docs/site/settings.py > docs/configuration.md"


@pytest.mark.parametrize("name", ["index.md", "how-it-works.md"])
def test_examples_of_pages_print_what_they_show(name):
    blocks = re.findall(r"^```pycon\n(.*?)^```", (DOCS / name).read_text(), re.MULTILINE | re.DOTALL)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, name, 0)
    assert doctest.DocTestRunner().run(examples) == doctest.TestResults(failed=0, attempted=len(examples.examples))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_of_pages_imports_what_there_is(page):
    for block in python_blocks(page):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gar"):
                module = importlib.import_module(node.module)
                assert all(hasattr(module, name.name) for name in node.names), f"{page.name}: {ast.unparse(node)}"


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_every_formula_of_a_page_becomes_mathml(page):
    for latex, display in formulas(page):
        markup = FORMULAS["mathml"](latex, display=display)
        assert markup.startswith("<math")
        assert display or latex == latex.strip(), f"a dollar beside a space begins no formula: {latex!r}"
    rows = [line for line in page.read_text().splitlines() if line.startswith("|")]
    split = [row for row in rows if any("|" in latex for latex in re.findall(r"\$([^$]+)\$", row))]
    assert not split, "a bar in a formula ends the cell of a table: write \\lvert, \\rvert or \\mid"


def test_a_formula_in_a_page_of_the_site_is_replaced():
    marked = r'<p><span class="arithmatex">\(a &lt; \sqrt{b}\)</span></p>'
    assert FORMULAS["on_page_content"](marked, page=None) == (
        "<p><math><mi>a</mi><mo>&lt;</mo><msqrt><mi>b</mi></msqrt></math></p>"
    )


def test_the_glossary_defines_every_metric():
    logged = set(re.findall(r'"((?:gar|time)/[a-z_]+)"[]:]', "\n".join(map(Path.read_text, ENGINES))))
    assert {"gar/outcome_mean", "gar/seconds"} <= logged
    glossary = (DOCS / "glossary.md").read_text()
    assert not {name for name in logged if f"`{name}`" not in glossary}


def test_the_readme_takes_three_minutes():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_prose_checker_sees_what_the_rules_name(tmp_path, capsys):
    check = runpy.run_path(str(ROOT / "scripts" / "check_prose.py"))["main"]
    page = tmp_path / "page.md"
    page.write_text(
        "One claim; two.\n\nIt is refused.\n\nThe behaviour of `a; b` in 95 % of runs.\n\n" + "many words " * 20
    )
    assert check([str(page)]) == 1
    found = [line.split(": ")[1] for line in capsys.readouterr().out.splitlines() if line.startswith(str(page))]
    assert found == ["semicolon", "refuse", "British", "space before %", "over 35 words"]
    page.write_text("One claim. `two; three`\n\n    code; more\n")
    assert check([str(page)]) == 0


@pytest.mark.slow
def test_the_site_builds_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    fetched = re.compile(
        r"""<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//|@import"""
    )
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert not fetched.search(text), page.name
        assert "arithmatex" not in text, page.name
