"""Formulas become MathML trees; what is no formula to us stays text, and no text is lost."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gar.report import maths
from gar.report.maths import MAX_CHARACTERS, mathml
from gar.report.page import ShownText
from gar.report.texts import Formulas, readable_prompt, recorded_prompt, shown_text

LATEX_PIECES = st.sampled_from(
    ["%", "&amp;", "<", "\\color{red}", "\\textbf{", "\\cancel{",
     "{", "}", "$", "\\", "^", "_", "&", "\\\\", "\\frac", "\\sqrt", "[", "]", "\\left(", "\\right)", "x", "12", " ",
     "\\begin{cases}", "\\end{cases}", "\\text", "\\boxed{", "\\(", "\\)", "$$", "'", "\\mathbb", "\\hat", "é", "\n"]
)  # fmt: skip


def shown(text: str, formulas: Formulas) -> ShownText:
    return shown_text(text, formulas, max_characters=10**6)


def rejoined(text: ShownText, formulas: Formulas) -> str:
    return "".join(part if isinstance(part, str) else formulas.rows[part]["source"] for part in text.parts)


@pytest.mark.parametrize(
    ("latex", "tree"),
    [
        (r"\frac12", ["mfrac", ["mn", "1"], ["mn", "2"]]),
        (r"\frac{a}{b}", ["mfrac", ["mi", "a"], ["mi", "b"]]),
        ("x_1^2", ["msubsup", ["mi", "x"], ["mn", "1"], ["mn", "2"]]),
        ("x^10", ["msup", ["mi", "x"], ["mn", "1"]]),
        ("f'", ["msup", ["mi", "f"], ["mo", "′"]]),
        (r"\sqrt[3]{2}", ["mroot", ["mn", "2"], ["mn", "3"]]),
        (r"\mathbb{R}", ["mi", "ℝ"]),
        (r"\boxed{7}", ["mrow", {"class": "boxed"}, ["mn", "7"]]),
        (r"\text{if <b>}", ["mtext", "if\xa0<b>"]),
        (r"\textbf{a<b}", ["mtext", {"class": "bold"}, "a<b"]),
        (r"\mbox{a}", ["mtext", "a"]),
        (r"\color{red}{x}", ["mrow", {"style": "color:#FF0000;"}, ["mi", "x"]]),
        ("a<b", ["mi", "a"]),
        (r"\%<b", ["mi", "%"]),
    ],
)
def test_mathml_builds_the_tree_that_the_formula_says(latex, tree):
    built = mathml(latex)
    assert built is not None
    assert built[1] == tree


def test_mathml_keeps_what_follows_a_per_cent_sign():
    assert mathml("50%+x") == ["mrow", ["mn", "50"], ["mi", "%"], ["mo", "+"], ["mi", "x"]]
    assert mathml(r"50\%+x") == mathml("50%+x")


def test_mathml_puts_no_space_into_a_number():
    assert mathml("1,000") == ["mrow", ["mn", "1"], ["mo", {"rspace": "0"}, ","], ["mn", "000"]]
    assert mathml("f(1,2)") == mathml("f(1, 2)")


def test_mathml_reads_named_characters_of_the_markup_and_not_of_the_text():
    assert ["mo", "\u2061"] in mathml(r"\gcd(a,b)")[1]
    assert mathml(r"\text{\&ApplyFunction;}") == ["mrow", ["mtext", "&ApplyFunction;"]]


def test_mathml_puts_limits_above_and_below_in_a_formula_of_its_own_only():
    assert mathml(r"\lim_{x}", display=True)[1][0] == "munder"
    assert mathml(r"\lim_{x}")[1][0] == "msub"


def test_mathml_lays_out_environments_in_rows_and_cells():
    tree = mathml(r"\begin{pmatrix}1&2\\3&4\end{pmatrix}")
    assert tree is not None
    opening, table, closing = tree[1][1:]
    assert (opening[-1], closing[-1]) == ("(", ")")
    cells = [[cell[1][1] for cell in row[1:]] for row in table[2:]]
    assert cells == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize(
    "latex",
    ["", "}{", r"\frac", r"\left( x", r"\unknown{x}", "^", "x^", "a & b", r"\begin{cases} 1", r"\href{javascript:x}{y}",
     "{" * 500, r"\sqrt" * 400, "x" * (MAX_CHARACTERS + 1), r"\text{$x$}", r"\begin{tikz}\end{tikz}", "x_1_2",
     r"\sqrt{" * 41 + "x" + "}" * 41, r"\cancel{x}", r"\text{\sout{x}}", r"\eqref{x}", "a\ud800", "\x00",
     r"\def\x{y}\x", r"\newcommand{\x}{y}\x", r"\renewcommand*{\x}{y}\x", r"\let\x=y\x"],
)  # fmt: skip
def test_mathml_is_none_where_it_does_not_know_the_formula(latex):
    assert mathml(latex) is None


def test_mathml_never_hands_a_definition_to_the_converter_whose_stack_it_would_overflow():
    braces = 600
    nested = r"\newcommand{\a}[1]{" + "{" * braces + "#1" + "}" * braces + "}" + r"\a{" * 99 + "x" + "}" * 99
    assert len(nested) <= MAX_CHARACTERS
    assert mathml(nested) is None


@pytest.mark.parametrize(
    "latex", ["{" * 1000 + "}" * 1000, "x^{" * 500 + "}" * 500, r"\sqrt" * 399 + "{}", r"\frac1" * 333 + "1"]
)
def test_mathml_survives_the_deepest_formulas(latex):
    assert mathml(latex) in (None, ["mrow", ["mrow"]])


@given(st.lists(LATEX_PIECES, max_size=40).map("".join))
def test_texts_are_whole_and_trees_hold_known_elements_and_attributes_alone(text):
    formulas = Formulas()
    assert rejoined(shown(text, formulas), formulas) == text

    def nodes(tree):
        yield tree
        for child in tree[1:]:
            if isinstance(child, list):
                yield from nodes(child)

    for row in formulas.rows:
        for name, *rest in nodes(row["tree"]):
            assert name.startswith("m")
            assert name.isalpha()
            attributes = next((part for part in rest if isinstance(part, dict)), {})
            assert attributes.keys() <= {"class", "style", *maths._ATTRIBUTES}
            assert "(" not in attributes.get("style", "")  # so no url()


@pytest.mark.parametrize(
    "text", ["It costs $5 and $6.", "$5-$6 off", "$20,000 and $30,000", "a $ b $ c", r"\$5 or \$6", "$x\ny$"]
)
def test_shown_text_leaves_prices_and_stray_dollars_alone(text):
    assert shown(text, Formulas()).parts == [text]


def test_shown_text_finds_formulas_by_every_delimiter():
    formulas = Formulas()
    text = r"Let $x^2$ and \(y\), then \[ z \] or $$w$$, so \boxed{5} by \begin{align}a&=b\end{align}."
    parts = shown(text, formulas).parts
    assert [row["source"] for row in formulas.rows] == [
        "$x^2$", r"\(y\)", r"\[ z \]", "$$w$$", r"\boxed{5}", r"\begin{align}a&=b\end{align}"
    ]  # fmt: skip
    assert [row["display"] for row in formulas.rows] == [False, False, True, True, False, True]
    assert parts[:3] == ["Let ", 0, " and "]


def test_shown_text_keeps_each_formula_once():
    formulas = Formulas()
    assert shown("$x$ $x$ $x$", formulas).parts == [0, " ", 0, " ", 0]
    assert len(formulas.rows) == 1


@pytest.mark.parametrize("piece", ["$", "$$", "\\[", "\\(", "\\boxed{", "\\begin{align}", "{", "$x$"])
def test_shown_text_takes_no_time_on_hostile_texts(piece):
    text = (piece * 100_000)[:100_000]
    formulas = Formulas()
    start = time.process_time()
    found = shown(text, formulas)
    assert time.process_time() - start < 2  # measured: 0.2 s at most
    assert rejoined(found, formulas) == text


def test_shown_text_says_how_much_it_cut():
    text = shown_text("abcdef", Formulas(), max_characters=4)
    assert (text.parts, text.num_cut) == (["abcd"], 2)


def test_recorded_prompt_gives_chat_messages_back():
    messages = [{"role": "user", "content": "3+4=\n'"}]
    assert recorded_prompt(str(messages)) == messages
    assert readable_prompt(str(messages)) == "user:\n3+4=\n'"


@pytest.mark.parametrize("prompt", ["3+4=", "[{'role': 'user'", "[{'x': 1}]", "[{'role': open('x')}]"])
def test_recorded_prompt_leaves_other_texts_as_they_are(prompt):
    assert recorded_prompt(prompt) == prompt
    assert readable_prompt(prompt) == prompt
