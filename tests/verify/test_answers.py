"""`grade_answer`: what equals a gold answer, what does not, and what is no statement about the answer at all."""

from gar.types import Status
from gar.verify.answers import MAX_ANSWER_CHARS, grade_answer, grade_exactly

# gold, answers that are decided without math-verify
EXACT_RIGHT = [
    (
        "18",
        "18 | 018 | +18 | 18. | 18.00 | $18 | \\$18 | $18$ | \\(18\\) | **18** | **18.** | 18\u200f | 1\u200b8 | "
        "18 dollars | 18 dollars per day. | 18\\text{ km/h} | 18\\ \\text{dollars} | $18 each | 18 cm | "
        "0.018 thousand | **18 | 18** | {18} | {18.} | 18_{10} | 22_8 | 10010_{2} | "
        "The answer is 18. | Answer: 18 | The final answer is $18$. | 18 (minutes) | She has 18 left. | 1.8e1",
    ),
    ("1,234", "1234 | 1,234 | 1{,}234 | 1\\,234 | 1 234 | 1\u00a0234 | 1234.0"),
    ("-3", "-3 | \u22123 | -3.0 apples"),
    ("0", "0 | -0 | 0.00"),
    ("3000000", "3 million | 3 million people | 3,000,000"),
    ("$18", "18 | 18.0"),
    ("x\u2208{1,2}", "x \u2208 {1,2}"),
    ("f(x)=\\left(x+\\dfrac{1}{2}\\right), else 0", "f(x) = (x + \\frac{1}{2}),else 0"),
    (
        "\\frac{1}{2}",
        "\\displaystyle \\dfrac{1}{2} | \\frac{1}{2} | $\\frac{1}{2}$ | \\(\\frac{1}{2}\\). | **\\frac{1}{2}**",
    ),
    ("-10", "$-10 dollars | -$10 | $-10"),
    ("700000", "7 lakh | 7 lakh rupees | 7\\times 10^5"),
    ("7000000000000000", "7 quadrillion"),
    ("602000000000000000000000", "6.02e23 | 6.02\\times10^{23} | 6.02 \\cdot 10^{23}"),
    ("6.02e23", "6.02\\times10^{23} | 602e21"),
    ("7/2", "3 1/2 | 3\\frac{1}{2}"),
    ("1/2", "3/6 | 007/014 | \\dfrac{2}{4} | -\\frac{-1}{2} | 123456789/246913578"),
    ("\\frac{0}{5}", "0/3"),
    ("0.000001", "1e-6"),
    ("1234.5", "1,234.50 | $1,234.50 | 1.2345e3"),
    ("12.5", "€12.50 | \\$12.50"),
    ("1500", "1.5\u00d710\u00b3"),
    ("-5", "\u20135 | \u22125"),
    ("78", "`78` | <b>78</b>"),
    # A gold answer with a unit: the same, in any spelling, or none.
    ("78 km", "78 | 78km | 78 kilometers | 78\\text{ km} | The distance is 78 km. | She ran 78 km."),
    ("\\$78", "78 | 78 dollars"),
    ("5 cm", "5 | 5 centimeters"),
    ("10 m/s", "10 | 10 meters per second"),
    ("2\\sqrt{3}", "2\u221a3 | 2\u221a{3}"),
    ("\\emptyset", "\\varnothing | \u2205"),
]
EXACT_WRONG = [
    ("18", "17 | -18 | 18.5 | 1.8 | 18.0000001 | 17.9999999 | 18,000 | 1 800 | 180"),
    # A word that makes the number another one.
    ("18", "18 hundred | 18\\text{ thousand}"),
    # Arithmetic that was left undone: else a policy could copy the problem.
    ("18", "9*2 | 9 \\times 2 | 36/2 | 16 + 2 | 9 \\cdot 2"),
    ("10", "7 3 | 7\\quad 3 | 7\n3"),
    # In another base, or in none.
    ("18", "18_{9} | 18_{8} | 18_1 | 18_0"),
    ("7", "7 quadrillion | 7 lakh | 7 crore"),
    ("6.02e23", "1.6e-19 | 6.02e22 | 6.02e-23"),
    ("1/2", "-1/2 | 4/2 | 0/3 | \\frac{1}{-2} | 123456789/246913579"),
    ("1/3", "\\frac{333333}{1000000}"),
    ("18", "The answer is 19. | She has 17 left."),
    ("0.5", "0.50001"),
    ("1234.5", "1,234.51"),
    ("78 km", "78 m | \\$78 | 78 miles | 78 km/h | 78 km per hour | 78 hours | 79 km | She ran 78 miles."),
    ("78 hours", "78 minutes"),
    ("15\\%", "15 km | 15 cents"),
    ("10 m/s", "10 m | 10 km/h | 10 m/s^2"),
    ("\\$78", "78 km | €78"),
    ("5 cm", "5 mm | 5 cm^2"),
    ("18\\text{ cm}^2", "18 cm | 18 m^2"),
]
PARSED_RIGHT = [
    ("18", "x = 18 | 9*2 = 18 | \\boxed{18} | 18\\% | \\frac{36}{2} | (18) | 18 m"),
    ("\\frac{1}{2}", "0.5 | \\frac12 | 50\\% | .5"),
    ("\\sqrt{2}", "2^{1/2} | \\frac{2}{\\sqrt{2}}"),
    ("\\{2, 3\\}", "3, 2 | 2\\text{ or }3 | 2 and 3"),
    ("2 or 3", "3, 2 | \\{2, 3\\}"),
    ("\\{(1, 2), (3, 4)\\}", "(1, 2), (3, 4)"),
    ("7", "7, 7"),
    ("(-\\infty, 0]", "(-\\infty,0]"),
    ("x+1", "1 + x"),
    ("x^2 + c", "c + x^2 | x^{2} + c"),
    ("(0, 0)", "(0,0)"),
    ("1,2,\\ldots, 1235", "1, 2, \\ldots,  1235 | 1, 2, \\dots, 1235 | 1,2,...,1235"),
    ("(3,2,5)", "{(3, 2, 5)}"),
    ("\\text{Evelyn}", "Evelyn | evelyn"),
    ("\\frac{1}{3}", "0.333333 | 0.3333333333 | \\frac{1}{3}\\text{ cm}^2 | 0.333333 metres"),
    ("2^{100}", "1267650600228229401496703205376 | 4^{50}"),
    ("1/20!", "4.110317623312165e-19 | \\frac{1}{2432902008176640000}"),
    ("\\sqrt{2}", "1.414214 | 1.41421356"),
    ("45^\\circ", "45 | 45 degrees"),
    ("9\\pi", "9\\pi cm^2 | 9\\pi\\text{ square meters}"),
    ("78 hours", "78 h"),
    ("15\\%", "15 | 15 percent | 15% | 0.15"),
    ("18\\text{ cm}^2", "18 cm^2 | 18\\ \\text{cm}^2"),
    ("(-\\infty, 3]", "x \\le 3 | 3 \\ge x"),
    ("(2, 5)", "2<x<5"),
    ("ab+bc+ac", "ab+bc+ca | $ca + ab + bc$"),
    ("\\frac{ac}{b}", "\\frac{ca}{b}"),
]
# Notation that must not be taken for the same: numbers run together, or a list for a thousands separator.
NOT_THE_SAME = [("a 1 2", "a 12 | a1 2"), ("1, 234, x", "1,234, x"), ("\\pi r", "\\pir"), ("odd n", "oddn")]
PARSED_WRONG = [
    ("7", "(3, 7) | [3, 7] | \\{3, 7\\} | 7x | 7! | x > 7"),
    ("2", "2\\sqrt{2}"),
    ("\\{3, 7\\}", "3 or 8 | 3, 7, 8 | 3"),
    ("3 or 7", "3 or 8 | 3"),
    ("\\frac{1}{3}", "0.33 | 0.3333"),
    ("(2, 3)", "(3, 2)"),
    ("x+1", "x+2"),
    ("x + c", "x | x + d"),
    ("1,2,\\ldots,1235", "1,2,\\ldots,1236 | 1,3,\\ldots,1235"),
    ("1/13983816", "0.0 | 0 | 0.0000001 | 7.1e-8"),
    ("\\frac{1}{20!}", "0.0 | 0 | 1e-19"),
    ("2^{100}", "2^{100}+0.5 | 1267650600228229401496703205377 | 1.2676506e30"),
    ("\\frac{x}{20!}", "0 | 0\\cdot x"),
    ("(\\frac{1}{20!}, 1)", "(0.0, 1)"),
    ("\\sqrt{10^{100}+1}", "10^{50}"),
    ("\\text{Evelyn}", "Evelny | Tom | nylevE | e v e l y n"),
    ("odd $n$", "ddo $n$ | odd $m$ | even $n$"),
    ("3a^2 - b^2 = 3", "3"),
    ("4500", "45\\times 10^2"),
    ("(-\\infty, 3]", "x < 3 | x \\ge 3"),
]
# More values than the gold answer has, which is one.
LISTS = [
    ("7", "3 or 7 | 7 or 3 | 3, 7 | 7; 3 | 7 and 8 | \\pm 7 | 7 \\pm 1 | x = 7, 8 | x = 7 \\text{ or } x = 8 | 7, n"),
    ("7", "\\boxed{3} and \\boxed{7} | 1} \\boxed{7 | 3$ and $7 | 3,7"),
    ("7", "7\\text{ or }\\frac{1}{2} | The answer is 3 or 7. | {7} or {3}"),
    ("\\frac{1}{2}", "\\frac12 \\text{ or \\frac34} | \\frac{1}{2}\\text{ or \\frac{3}{4}}"),
    ("\\frac{1}{2}", "\\frac{1}{2}\\text{ or }\\frac{3}{4}"),
    ("x+1", "x+1, x+2 | x+1 or 3"),
    ("(3, 7)", "(3, 7) or (3, 8) | (3, 7), 9"),
]
# Hedges, denials, and words after which the number is no longer the value.
HEDGES = [
    (
        "78",
        "about 78 | 78 or so | not 78 | perhaps 78 | approximately 78 | maybe 78 | around 78 | at least 78 | ca. 78 | "
        "between 70 and 80 | 3, or maybe 78 | 78 at most | anything but 78 | any 78 | some 78 | 78ish | c. 78 m | "
        "The answer is about 78. | I think 78 | 78 km, ... | 78 or | 39 squared | 78 minus something | 78 plus some | "
        "It isn\u2019t 78 | hardly 78 | 78, presumably | apparently 78 | close to 78 | up to 78 | ca 78 m | "
        "I suppose 78 | supposedly 78 | barely 78 | seemingly 78 | a ballpark 78",
    ),
    ("18", "1.8 dozen | 18 and half | 18 squared | 18 apples or twenty | 18 and a half"),
    ("2", "All powers of 2 | half of 2"),
    ("7", "3 of 7 apples | if x is 7 | minus 7 | sum of 3 and 7 | the 7th day | a multiple of 7"),
    ("\\frac{1}{2}", "about \\frac{1}{2} | \\frac{1}{2} or so | \\frac{1}{2}\\text{ or so} | not \\frac{1}{2}"),
    ("3.5", "about 3.5 | 3.5 or so | 3.5 ish"),
    ("n+1", "about n+1 | perhaps n+1 | n+1\\text{ perhaps} | n+1\\text{ (approx.)} | not n+1 | n+1 or so"),
    ("(3, 7)", "about (3, 7) | (3, 7) or so | (3, 7) ish"),
    ("1 if triangle is isoceles, otherwise 2", "1 if triangle is isoceles, otherwise 2 \\text{ perhaps}"),
    ("\\text{Evelyn}", "perhaps Evelyn | not Evelyn | Evelyn or Tom"),
]
UNPARSED = [
    ("7", "I don't know | seven | x | 7\x00 | \u0667 | {7 | \u221a3 or 7 | final answer is $7$. I hope it is correct"),
    ("7", "** | 7 \\text{ (or 8)} | ~7 | \\approx 7 | 7? | 7+"),
    ("1,2,\\ldots,1235", "1, 2, 1235 | 1235"),
    ("1, 2, 1235", "1, 2, \\dots, 1235 | 1, 2, ..., 1235"),
]


def pairs(table: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(gold, answer) for gold, answers in table for answer in answers.split(" | ")]


def test_grade_exactly_decides_numbers_and_equal_text() -> None:
    for table, expected in ((EXACT_RIGHT, (Status.OK, 1.0)), (EXACT_WRONG, (Status.WRONG, 0.0))):
        for gold, answer in pairs(table):
            graded = grade_exactly(answer, gold)
            assert graded is not None
            assert (graded.status, graded.grade) == expected, answer


def test_grade_answer_parses_expressions() -> None:
    for table, expected in ((PARSED_RIGHT, (Status.OK, 1.0)), (PARSED_WRONG, (Status.WRONG, 0.0))):
        for gold, answer in pairs(table):
            assert grade_exactly(answer, gold) is None, answer
            graded = grade_answer(answer, gold)
            assert (graded.status, graded.grade) == expected, answer


def test_grade_answer_unparsed() -> None:
    for gold, answer in pairs(UNPARSED + LISTS + HEDGES):
        graded = grade_answer(answer, gold)
        assert (graded.status, graded.grade, graded.detail != "") == (Status.UNPARSED, 0.0, True), answer


HOSTILE = {
    "9" * 1_000_000: "1000000 characters",
    "9" * (MAX_ANSWER_CHARS + 1): f"more than {MAX_ANSWER_CHARS}",
    "{" * 500: "nested 500 deep",
    "\\frac{1}{" * 150 + "1" + "}" * 150: "nested 150 deep",
    "": "empty",
    "\u200f": "empty",
}


def test_grade_exactly_refuses_hostile_answers_unread() -> None:
    for answer, detail in HOSTILE.items():
        graded = grade_exactly(answer, "7")
        assert graded is not None
        assert (graded.status, detail in graded.detail) == (Status.UNPARSED, True), detail


NO_FRACTIONS = ["1/0", r"\frac{1}{0}", "0.5", r"\frac12", "1/2/3", r"\frac{1}{2}x", "1/2 or 3/4"]


def test_grade_exactly_leaves_to_the_parser_what_it_does_not_read() -> None:
    undecided = [(r"\frac{7}{2}", answer) for answer in NO_FRACTIONS] + pairs(NOT_THE_SAME)
    assert [answer for gold, answer in undecided if grade_exactly(answer, gold) is not None] == []


def test_grade_answer_gold_that_cannot_be_parsed_is_an_error() -> None:
    for gold in ("x\u2208{1,2}", "T(p,q)=0 if (p,q)=(0,0), p+q otherwise"):
        assert grade_answer(gold, gold).status == Status.OK
        graded = grade_answer("7", gold)
        assert (graded.status, "cannot be parsed" in graded.detail) == (Status.ERROR, True)
