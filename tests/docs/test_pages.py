"""Pages and notebooks: examples run, links lead somewhere, and the site has every page."""

import doctest
import re
import runpy
import sys
from pathlib import Path
from typing import get_args

import pytest

from gar.integrations.trl.fields import TESTED, known_fields
from gar.types import PromptTemplate
from tests.docs.pages import DOCS, PAGES, ROOT, outputs_of
from tests.support.processes import completed

_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")


def slug(heading: str) -> str:
    """The anchor that the site and GitHub make of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")


def test_pages_and_messages_say_expert_solution():
    # "Anchor" is the word of formulas and of code: defined in the glossary, introduced where the method is explained.
    prose = runpy.run_path(str(ROOT / "scripts" / "check_prose.py"))["prose"]
    speak_of_vectors = {"docs/equations.md", "docs/log.md", "docs/how-it-works.md", "docs/glossary.md"}
    pages = [path for path in PAGES if path.relative_to(ROOT).as_posix() not in speak_of_vectors]
    for path in [*(page for page in pages if "paper" not in page.parts), ROOT / "tests/golden/messages.txt"]:
        text = re.sub(
            r"'[\w-]+'|\banchors(?= is |=)|gar\.Anchor", "X", prose(path.read_text(encoding="utf-8"))
        )  # names
        assert not re.findall(r".*(?<!-)\banchors?\b(?!-).*", text, re.IGNORECASE), path


def test_links_lead_somewhere():
    for page, link in ((path, link) for path in PAGES for link in _LINK.findall(path.read_text())):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":  # a picture has #only-light or #only-dark
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page.name}: {link}"


def test_equations_name_tests_that_there_are():
    paths = [*(ROOT / "tests").rglob("test_*.py")]
    known = [path.name for path in paths] + re.findall(r"def (test_\w+)", "\n".join(map(Path.read_text, paths)))
    named = re.findall(r"`(?:[\w/.]+::)?((?:\.\.\.|[\w/]*test)_\w+(?:\.py)?)`", (DOCS / "equations.md").read_text())
    assert len(named) > 100
    for name in named:
        assert any(each.endswith(name.removeprefix("...").rpartition("/")[2]) for each in known), name


def test_equations_name_modules_that_there_are():
    text = (DOCS / "equations.md").read_text()
    named = re.findall(r"`([\w/]+\.py)`", "\n".join(re.findall(r"^#+ .*$", text, re.MULTILINE)))
    assert len(named) > 10
    for name in named:
        assert any((ROOT / folder / name).is_file() for folder in ("src/gar/core", "src/gar", ".")), name


def test_pages_and_constraints_name_the_tested_release_of_trl():
    for name, text in (
        ("README.md", f"TRL {TESTED}"),
        ("docs/engine-facts.md", f"TRL {TESTED}"),
        ("docs/installation.md", f"{TESTED}.0"),
        ("docs/integrations/trl.md", f"GRPOTrainer ({TESTED}"),
        ("docs/which-engine.md", f"TRL {TESTED}"),
        ("constraints/main.txt", f"trl=={TESTED}"),
        ("constraints/vllm.txt", f"trl=={TESTED}"),
    ):
        assert text in (ROOT / name).read_text(), name


def test_flags_of_trl_in_texts_are_fields_that_it_has():
    places = [
        *(ROOT / "src" / "gar").rglob("*.py"),
        *PAGES,
        *(ROOT / "scripts").glob("*.sh"),
        *(ROOT / "examples").glob("*"),
    ]
    texts = [path.read_text() for path in places if path.is_file()]
    named = {name for text in texts for name in re.findall(r"--trl\.(\w+)", text)}
    named |= {name for text in texts for name in re.findall(r'trl_number\(config, "(\w+)"\)', text)}
    assert len(named) > 20
    assert sorted(named - known_fields().keys() - {"FIELD", "X"}) == []


def test_the_site_shows_every_page_once():
    nav = re.findall(r"^ {6}- .*: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"log.md"}  # for contributors
    assert sorted(nav) == sorted(written), "mkdocs.yml: nav"


def test_the_page_of_the_settings_is_that_of_the_source():
    page = runpy.run_path(str(DOCS / "site" / "settings.py"))["page"]()
    assert page == (DOCS / "configuration.md").read_text(), "python docs/site/settings.py > docs/configuration.md"


@pytest.mark.slow
def test_the_outputs_of_commands_are_what_they_print():
    page = DOCS / "evaluation.md"
    assert runpy.run_path(str(DOCS / "site" / "outputs.py"))["page"](page) == page.read_text()


def test_the_drawn_pictures_are_those_of_the_script(tmp_path):
    drawn = runpy.run_path(str(DOCS / "site" / "pictures.py"))
    for scheme, colors in drawn["SCHEMES"].items():
        for name, draw in drawn["PICTURES"].items():
            draw(colors).write(tmp_path / "picture.svg")
            committed = (DOCS / "images" / f"{name}-{scheme}.svg").read_text()
            assert (tmp_path / "picture.svg").read_text() == committed, f"python -m docs.site.pictures {name}"


def test_examples_of_pages_print_what_they_show():
    for page in PAGES:
        blocks = re.findall(r"^```pycon\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, page.name, 0)
        assert doctest.DocTestRunner().run(examples).failed == 0, page.name


def test_the_page_of_evaluations_lists_every_template():
    table = (DOCS / "evaluation.md").read_text().partition("| `--template` |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE)
    assert sorted(listed) == sorted(get_args(PromptTemplate)), "docs/evaluation.md: a row for each of PromptTemplate"


@pytest.mark.slow
def test_the_quick_start_notebook_scores_and_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outputs = outputs_of(ROOT / "examples" / "quick_start.ipynb")
    printed = "".join(line for output in outputs for line in output.get("text", []))
    table = re.findall(r"^(ok|wrong|unparsed) +(-|-?\d\.\d\d)  +(\d\.\d\d)  +(-?\d\.\d\d) ", printed, re.MULTILINE)
    assert len(table) == 8
    assert max(float(bonus) for _, _, bonus, _ in table) > 0.1
    assert re.findall(r"^(\d) \{'reward'", printed, re.MULTILINE) == ["1", "2", "3"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_site_builds_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = completed(command, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    fetched = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="(?:https?:)?//|<link[^>]*\shref="(?:https?:)?//|@import')
    for page in tmp_path.rglob("*.html"):
        text = page.read_text()
        assert not fetched.search(text), page.name
        assert "arithmatex" not in text, page.name
