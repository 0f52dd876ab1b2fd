"""Answers that somebody who wants the reward, or is careless, could write: what becomes of each is decided here."""

from gar.types import Status
from gar.verify.answers import grade_answer

OK, WRONG, UNPARSED = Status.OK, Status.WRONG, Status.UNPARSED
# gold, answer, status
ATTACKS = [
    # Digits and marks of other scripts.
    ("78", "\uff17\uff18", UNPARSED), ("78", "\u0667\u0668", UNPARSED), ("78", "7\u200b8", OK),
    ("78", "\u221278", WRONG),
    ("78", "\u202e87\u202c", WRONG), ("78", "7\u20448", UNPARSED), ("78", "\u277778", UNPARSED),
    ("78", "78\u00b2", UNPARSED),
    ("0.5", "\u00bd", UNPARSED),
    # Boxes.
    ("78", r"\boxed{\boxed{78}}", OK), ("78", r"\boxed{77}\boxed{78}", UNPARSED), ("78", r"\boxed{}", UNPARSED),
    ("78", r"\boxed{78} or \boxed{79}", UNPARSED), ("78", r"\boxed{78", OK),
    # Hedges, denials, comparisons.
    ("78", "78?", UNPARSED), ("78", "78!", WRONG), ("3", "between 3 and 7", UNPARSED), ("3", "3 to 7", UNPARSED),
    ("3", "3-7", WRONG), ("3", "3--7", WRONG), ("3", "3...7", UNPARSED), ("78", "more than 78", UNPARSED),
    ("78", "less than 78", UNPARSED), ("78", "either 78", OK), ("78", "the answer is 78, not 79", UNPARSED),
    ("78", "I hope 78", UNPARSED), ("78", "twice 78", UNPARSED), ("78", "half of 78", UNPARSED), ("78", "-(-78)", OK),
    ("78", "78; 79", UNPARSED), ("78", "78, 78", OK), ("78", r"77 \lor 78", UNPARSED), ("78", "78 if lucky", UNPARSED),
    ("78", "negative 78", UNPARSED), ("78", "seventy-eight", UNPARSED), ("78", "78 point five", UNPARSED),
    ("7", "7 over 2", UNPARSED),
    # Percent, separators, scientific notation, mixed numbers.
    ("0.78", r"78\%", OK), ("78", "78%", OK), ("0.78", "78%", OK), ("78", "0.78", WRONG), ("0.78", "78 percent", OK),
    (r"78\%", "78", OK), (r"78\%", "0.78", OK), (r"78\%", "7800", WRONG), ("78", r"7800\%", OK),
    ("78", r"0.78\%", WRONG),
    (r"-78\%", "-78", OK), ("-78", r"-78\%", OK), (r"78\%", r"\frac{39}{50}", OK), ("1234", "1,234", OK),
    ("1234", "1.234", WRONG), ("1234", "1,23,4", UNPARSED), ("1234", "12,34", UNPARSED),
    ("1234", "1.234e3", OK),
    ("1234", "1.234E3", OK), ("1234", r"1.234\times 10^3", OK), ("1234", "1234e0", OK), ("1234", "0.1234e4", OK),
    ("2", "3 1/2", WRONG), (r"\frac{7}{2}", r"$\frac{7}{2}$", OK), (r"\frac{7}{2}", r"3\frac{1}{2}", OK),
    (r"\frac{3}{2}", r"3\frac{1}{2}", WRONG),
    ("3.5", "7/2", OK), ("3.5", "3,5", UNPARSED), ("3", "2.9999999999", WRONG), ("3", r"2.\overline{9}", UNPARSED),
    ("1000000", "1e6", OK),
    ("1000000", "10^6", WRONG), ("0", "1e-300", WRONG), ("0", "1e-9999", WRONG), ("18", "1e9999999999", WRONG),
    # Equations, tuples, sets, intervals.
    ("3", "x=3,y=4", UNPARSED), ("(3,4)", "x=3,y=4", OK), ("(3,4)", "(x,y)=(3,4)", OK), ("(3,4)", "(4,3)", WRONG),
    ("(3,4)", "3,4", OK),
    (r"\{3,4\}", "4, 3", OK), (r"\{3,4\}", r"\{3,4,5\}", WRONG), ("[3,4]", "[3,4)", WRONG),
    ("(3,4)", "[3,4]", WRONG), ("3", "(3,4)", WRONG),
    ("3", r"\{3\}", OK), ("3", "x \\in \\{3\\}", OK), ("3", "x = 3 = 4", WRONG), ("4", "3 = 4", OK),
    ("3", "x > 3", WRONG), ("3", r"x \ne 3", WRONG),
    ("3", r"\mathbb{R}", WRONG), ("3", "[3, 3]", OK), ("3", r"3 \pm 0", WRONG), ("3", r"\pm 3", UNPARSED),
    ("3", "n", UNPARSED),
    ("3", r"\begin{pmatrix} 3 \end{pmatrix}", WRONG), ("3", "3_{10}", OK), ("3", "11_2", OK), ("3", "x_3", WRONG),
    # Units and degrees.
    ("45", r"45^\circ", OK), ("45", "45 degrees", OK), ("45", "45°", OK), ("45", "45 km/h", OK),
    ("45", "45 m^2", OK), ("45", "45 cm^{2}", OK),
    ("45", r"45\text{ m/s}", OK), ("45", "45 (in kg)", OK), ("45", "45 thousand", WRONG), ("45", "45k", WRONG),
    ("45", "$45", OK), ("45", "€45", OK),
    ("45", "45 x", WRONG), ("45", "45 US dollars", OK), ("45", "45 dozen", UNPARSED), ("45", "$45.00", OK),
    ("45", "45 of 45", UNPARSED),
    # What would be evaluated for us.
    ("3", r"\gcd(3, 6)", WRONG),
    ("3", r"\operatorname{rank}\begin{pmatrix}1&0&0\\0&1&0\\0&0&1\end{pmatrix}", WRONG), ("3", r"\sqrt{9}", WRONG),
    ("3", r"\lfloor\pi\rfloor", WRONG), ("3", r"|{-3}|", WRONG), ("3", "3!/2", WRONG), ("3", "3^1", WRONG),
    ("3", "3*1", WRONG), ("3", "3+0", WRONG),
    ("3", "3/1", WRONG), ("3", r"\frac{3}{1}", OK), ("3", r"e^{\ln 3}", WRONG), ("3", "0.5+2.5", WRONG),
    ("3", r"\frac{9}{3}", OK),
    ("3", "__import__('os').getpid()", UNPARSED), ("3", "lambda: 3", OK), ("3", "3 # 4", UNPARSED),
    ("3", "3\n\n4", WRONG),
]  # fmt: skip


def test_attacks() -> None:
    for gold, answer, status in ATTACKS:
        assert grade_answer(answer, gold).status == status, (gold, answer)
