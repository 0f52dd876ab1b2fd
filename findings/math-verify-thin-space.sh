#!/usr/bin/env bash
# math-verify 0.9.0: a number with LaTeX's thin space between its thousands, `10\,000`, is not equal to 10000.
# Expected: equal, as `10,000` and `10{,}000` are. The space ends the number.
# Source: the normalization in latex2sympy2_extended and `parse` of math_verify/parser.py
# gar: grades it right (tests/verify/cases.tsv).
exec "$(dirname "$0")/with.sh" math-verify==0.9.0 'latex2sympy2_extended[antlr4_9_3]==1.11.0' <<'PYTHON'
from importlib.metadata import version

from math_verify import parse, verify

gold = parse("$10000$")
verdicts = {text: verify(gold, parse(f"${text}$")) for text in (r"10,000", r"10{,}000", r"10\,000")}
print(version("math-verify"), verdicts)
assert verdicts == {r"10,000": True, r"10{,}000": True, r"10\,000": False}
PYTHON
