"""Arithmetic left undone: a copy of the problem must not pay, a closed form of the gold answer must."""

from gar.types import Status
from gar.verify.answers import grade_answer

# An "evaluate this" problem and its value.
PROBLEMS = [
    ("{9}*2", "18"), ("9⋅2", "18"), ("9·2", "18"), ("9×2", "18"), ("9∗2", "18"), (r"9\cdot 2", "18"), ("36÷2", "18"),
    ("36:2", "18"), ("3+15", "18"), ("3+15 apples", "18"), ("$3+$15", "18"), ("x=3+15", "18"), ("(3+15)", "18"),
    ("|3+15|", "18"), ("|-18|", "18"), (r"\left|3-21\right|", "18"), ("20-2", "18"), ("-(2-20)", "18"),
    ("(9)(2)", "18"),
    ("3(4)", "7"), ("7 3", "10"), (r"\binom{8}{4}", "70"), ("5!", "120"), (r"\frac{5!}{3!}", "20"), ("2^{10}", "1024"),
    ("3^2+3^2", "18"), (r"\sqrt{324}", "18"), (r"\sqrt[3]{27}", "3"), (r"\sum_{k=1}^{3} 6", "18"),
    (r"\prod_{k=1}^{3} k", "6"), (r"\int_0^6 3 dx", "18"), (r"\lim_{x\to 0} (x+18)", "18"), (r"\frac{d}{dx} 18x", "18"),
    (r"\log_2 8", "3"), (r"\gcd(12, 18)", "6"), (r"\operatorname{lcm}(4,6)", "12"), (r"\max(3,18)", "18"),
    (r"\lfloor 18.7 \rfloor", "18"), (r"\lceil 17.2 \rceil", "18"), (r"e^{0}", "1"), (r"\cos 0", "1"),
    (r"\begin{vmatrix} 1 & 2 \\ 3 & 4 \end{vmatrix}", "-2"), (r"18 \mod 10", "8"), (r"\Gamma(5)", "24"),
    ("18=12+6", "18"),
    (r"\frac{1}{2}+\frac{1}{3}", r"\frac{5}{6}"), ("1/2+1/3", "5/6"), (r"\frac{1}{2}\cdot\frac{1}{3}", r"\frac{1}{6}"),
    (r"\frac{3}{4}\div\frac{1}{2}", r"\frac{3}{2}"), (r"\frac{1/2}{1/3}", r"\frac{3}{2}"), (r"2^{-1}", r"\frac{1}{2}"),
    (r"\frac{1+2}{7}", r"\frac{3}{7}"), ("1-1/4", "0.75"), ("0.5+0.25", "0.75"), ("0.5*1.5", "0.75"), ("1.5/2", "0.75"),
    (r"\sin\frac{\pi}{6}", r"\frac{1}{2}"), (r"\sqrt{50}+\sqrt{8}", r"7\sqrt{2}"), (r"2\cdot 3\sqrt{5}", r"6\sqrt{5}"),
    (r"\sqrt{2}\cdot\sqrt{3}", r"\sqrt{6}"), (r"3-2+\sqrt{2}", r"1+\sqrt{2}"), (r"2\pi+3\pi", r"5\pi"),
    ("3x/x", "3"), (r"\frac{x^2-1}{x-1}-x", "1"), ("x+3+15", "x+18"), ("9*2*x", "18x"), ("(1+1, 3)", "(2, 3)"),
    (r"\{1, 1+1\}", r"\{1, 2\}"), (r"2 \pm 1", "1, 3"),
    (r"\{1\}\cup\{2\}", r"\{1, 2\}"), ("x < 3+15", "x < 18"), ("[1, 1+1]", "[1, 2]"), ("2^{99}+2^{99}-1+1", "2^{100}"),
    (r"\frac{d}{dx} x^2", "2x"), (r"\int 2x dx", "x^2"), (r"\sum_{k=1}^{n} k", r"\frac{n(n+1)}{2}"),
]  # fmt: skip
# A gold answer and other ways to write it.
CLOSED_FORMS = [
    ("18", [r"1.8\times 10^{1}", "1.80E1", r"18^\circ", r"\{18\}", "--18", r"\frac{-36}{-2}"]),
    ("-18", ["-18.0", r"-\frac{36}{2}", "- 18", r"\frac{-36}{2}"]),
    (r"\frac{7}{2}", ["3.5", "3 1/2", r"3\frac{1}{2}", r"3 \frac{1}{2}", r"\frac{14}{4}", "7/2", r"\dfrac72",
    r"350\%"]),
    (r"\frac{1}{3}", ["0.333333", "0.3333333", "1/3", r"\frac{2}{6}"]),
    ("0.75", [r"\frac{3}{4}", r"75\%", "3/4", ".75", r"7.5\times 10^{-1}"]),
    (r"2\sqrt{3}", [r"\sqrt{12}", r"\sqrt{3}\cdot 2", r"\frac{6}{\sqrt{3}}", r"2\cdot\sqrt{3}", r"2 \sqrt 3",
    r"2\cdot 3^{1/2}",
                    r"\sqrt{2}\sqrt{6}", "3.464102"]),
    (r"\sqrt{12}", [r"2\sqrt{3}"]),
    ("2^{10}", ["1024", "4^5", r"2^{10}", "{2}^{10}"]),
    (r"4\cdot 3^{2023}", [r"3^{2023}\cdot 4", r"\frac{4\cdot 3^{2024}}{3}"]),
    ("2^{2024}+1", ["1+2^{2024}", "4^{1012}+1"]),
    (r"\frac{17458+2970\sqrt{5}}{23769}", [r"\frac{17458}{23769}+\frac{2970\sqrt{5}}{23769}"]),
    (r"\sqrt{2}-1", [r"-1+\sqrt{2}", r"\frac{1}{\sqrt{2}+1}", "0.41421356"]),
    (r"\frac{5+\sqrt{21}}{2}", [r"2.5+\frac{\sqrt{21}}{2}", r"\frac{\sqrt{21}+5}{2}"]),
    (r"\frac{\sqrt{510}}{3}\pi", [r"\frac{\sqrt{510}\pi}{3}", r"\pi\frac{\sqrt{510}}{3}"]),
    (r"\binom{8}{4}", ["70", r"\binom{8}{4}"]),
    ("20!", ["2432902008176640000", r"20!"]),
    ("2+3i", ["3i+2"]),
    (r"\log_2 3", [r"\log_{2}{3}"]),
    ("x^2+3x-2", ["x(x+3)-2", "3x+x^2-2"]),
    ("x^3-1", ["(x-1)(x^2+x+1)"]),
    (r"\frac{n(n+1)}{2}", [r"\frac{n^2+n}{2}", "n(n+1)/2"]),
    ("(n-2)!", [r"(n-2)!"]),
    (r"1, \sqrt{2}", [r"\sqrt{2}, 1", r"\{1, \sqrt{2}\}"]),
    (r"1\pm\sqrt{2}", [r"1+\sqrt{2}, 1-\sqrt{2}"]),
    (r"(-\infty, 1)\cup(2, \infty)", [r"(2,\infty)\cup(-\infty,1)"]),
]  # fmt: skip


def test_copy_of_the_problem_is_not_right_and_a_closed_form_is() -> None:
    for problem, gold in PROBLEMS:
        for prompt in ("", f"Evaluate ${problem}$."):
            assert grade_answer(problem, gold, prompt).status != Status.OK, problem
        assert grade_answer(gold, gold, f"Evaluate ${problem}$.").status == Status.OK, gold
    for gold, forms in CLOSED_FORMS:
        for form in (gold, *forms):
            assert grade_answer(form, gold).status == Status.OK, form


# prompt, gold, answer, whether it is right
WITH_PROMPT = [
    (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\sqrt{12}", False),
    (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"2\sqrt3", True),
    (r"Simplify $\sqrt{12}$.", r"2\sqrt{3}", r"\frac{6}{\sqrt{3}}", True),
    ("What is 18/2?", r"9", r"\frac{18}{2}", False),
    (r"What is $\frac{36}{2}$?", "18", r"\dfrac{36}{2}", False),
    (r"Reduce $\dfrac{2}{4}$.", r"\frac{1}{2}", r"\frac{2}{4}", False),
    ("Reduce 2/4.", "1/2", "2/4", False),
    ("Reduce 2/4.", "1/2", "3/6", True),
    ("Which is larger, 1/2 or 1/3?", r"\frac{1}{2}", "1/2", True),
    ("Which is larger, 1/2 or 1/3?", r"0.5", "1/2", True),
    ("Which of 7, 18 and 23 is even?", "18", "18", True),
    ("Which of 0.5 and 0.7 is larger?", r"\frac{7}{10}", "0.7", True),
    (r"Which is larger, $2\sqrt{3}$ or $\sqrt{11}$?", r"2\sqrt{3}", r"2 \sqrt{3}", True),
    ("Which of (1, 2) and (2, 1) lies on y = 2x?", "(1,2)", "(1, 2)", True),
    ("Factor $x^2+3x+2$.", "(x+1)(x+2)", "x^2 + 3x + 2", False),
    ("Factor $x^2+3x+2$.", "(x+1)(x+2)", "(x+2)(x+1)", True),
    ("Expand $(x+1)(x+2)$.", "x^2+3x+2", "(x+1)(x+2)", False),
    ("Write $22_8$ in base ten.", "18", "22_8", False),
    ("Write $22_8$ in base ten.", "18", "18_{10}", True),
    (r"What is $2^{10} \cdot 3$?", r"3\cdot 2^{10}", r"2^{10}\cdot 3", False),
    ("Tom has 12 apples.", "2", r"\frac{4}{2}", True),
]
# Copies with a trivial edit, which equal the gold answer too: prompt, gold, answers.
EDITED_COPIES = [
    (r"Compute $\frac{156}{2}$.", "78",
     [r"\frac{0156}{2}", r"\frac{-156}{-2}", r"\frac{156.0}{2}", r"-\frac{-156}{2}",
      r"\frac{(156)}{2}", r"\frac{156+0}{2}"]),
    (r"Simplify $\sqrt{156}$.", r"2\sqrt{39}",
     [r"1\cdot\sqrt{156}", r"\sqrt{0156}", r"\frac{\sqrt{156}}{1}", r"--\sqrt{156}", r"(\sqrt{156})"]),
    ("Factor x^2-1", "(x-1)(x+1)", ["-1+x^2", "-(1-x^2)", r"x\cdot x - 1", "1(x^2-1)", "(x^2-1)+0", "y = x^2-1"]),
    (r"Let $f(x)=(x+1)^2$. Expand.", "x^2+2x+1", ["((x+1))^2", "(1+x)(x+1)", "(-x-1)^2", "f(x)=(x+1)^2", "y=(1+x)^2"]),
    ("Write 22_8 in base ten.", "18", ["022_8", "22_{8}"]),
]  # fmt: skip
NO_COPIES = [
    (r"Compute $\frac{156}{2}$.", "78", ["78", "78.0", "(78)", r"\frac{78}{1}"]),
    (r"Simplify $\sqrt{156}$.", r"2\sqrt{39}", [r"\sqrt{39}\cdot 2", r"2\cdot\sqrt{39}"]),
    ("Factor x^2-1", "(x-1)(x+1)", ["(x+1)(x-1)", r"(x+1)\cdot(x-1)", "-(1-x)(x+1)"]),
    (r"Let $f(x)=(x+1)^2$. Expand.", "x^2+2x+1", ["1+2x+x^2", "f(x)=x^2+2x+1", "x(x+2)+1"]),
    (r"Which is larger, $2\sqrt{3}$ or $\sqrt{11}$?", r"2\sqrt{3}", [r"\sqrt{3}\cdot 2"]),
    (r"Is $9^{9^{9^9}}$ odd? Reduce $\frac{6}{4}$.", "1.5", [r"\frac{3}{2}", "3/2"]),
    (r"Solve $x < \sqrt{3}$.", r"x<\sqrt{3}", [r"(-\infty, \sqrt{3})"]),
]


def test_expression_copied_from_the_prompt_is_not_right_with_or_without_a_trivial_edit() -> None:
    for prompt, gold, answer, right in WITH_PROMPT:
        graded = grade_answer(answer, gold, prompt)
        assert (graded.status == Status.OK) is right, answer
        assert right or graded.detail == "an expression copied from the prompt"
    for table, status in ((EDITED_COPIES, Status.WRONG), (NO_COPIES, Status.OK)):
        for prompt, gold, answers in table:
            for answer in answers:
                assert grade_answer(answer, gold, prompt).status == status, answer
