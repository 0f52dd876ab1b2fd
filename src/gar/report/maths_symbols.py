"""LaTeX commands that stand for one character or one word, by what MathML makes of them."""

_GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε", "zeta": "ζ", "eta": "η",
    "theta": "θ", "vartheta": "ϑ", "iota": "ι", "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π",
    "rho": "ρ", "sigma": "σ", "tau": "τ", "upsilon": "υ", "phi": "ϕ", "varphi": "φ", "chi": "χ", "psi": "ψ",
    "omega": "ω", "Gamma": "Γ", "Delta": "Δ", "Theta": "Θ", "Lambda": "Λ", "Xi": "Ξ", "Pi": "Π", "Sigma": "Σ",
    "Upsilon": "Υ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω",
}  # fmt: skip

IDENTIFIERS = _GREEK | {
    "infty": "∞", "ell": "ℓ", "emptyset": "∅", "varnothing": "∅", "partial": "∂", "nabla": "∇", "hbar": "ℏ",
    "aleph": "ℵ", "Re": "ℜ", "Im": "ℑ", "imath": "ı", "jmath": "ȷ", "top": "⊤", "bot": "⊥", "angle": "∠",
    "triangle": "△", "degree": "°", "prime": "′", "square": "□", "Box": "□",
}  # fmt: skip

OPERATORS = {
    "cdot": "⋅", "times": "×", "div": "÷", "pm": "±", "mp": "∓", "ast": "∗", "star": "⋆", "circ": "∘", "bullet": "∙",
    "oplus": "⊕", "ominus": "⊖", "otimes": "⊗", "le": "≤", "leq": "≤", "leqslant": "⩽", "ge": "≥", "geq": "≥",
    "geqslant": "⩾", "ne": "≠", "neq": "≠", "lt": "<", "gt": ">", "ll": "≪", "gg": "≫", "approx": "≈", "sim": "∼",
    "simeq": "≃", "cong": "≅", "equiv": "≡", "propto": "∝", "in": "∈", "notin": "∉", "ni": "∋", "subset": "⊂",
    "subseteq": "⊆", "supset": "⊃", "supseteq": "⊇", "cup": "∪", "cap": "∩", "setminus": "∖", "land": "∧", "wedge": "∧",
    "lor": "∨", "vee": "∨", "lnot": "¬", "neg": "¬", "forall": "∀", "exists": "∃", "nexists": "∄", "to": "→",
    "rightarrow": "→", "leftarrow": "←", "gets": "←", "leftrightarrow": "↔", "Rightarrow": "⇒", "implies": "⟹",
    "Leftarrow": "⇐", "Leftrightarrow": "⇔", "iff": "⟺", "longrightarrow": "⟶", "Longrightarrow": "⟹", "mapsto": "↦",
    "uparrow": "↑", "downarrow": "↓", "mid": "∣", "nmid": "∤", "parallel": "∥", "perp": "⊥", "ldots": "…", "dots": "…",
    "dotsc": "…", "cdots": "⋯", "dotsb": "⋯", "vdots": "⋮", "ddots": "⋱", "colon": ":", "therefore": "∴",
    "because": "∵", "models": "⊨", "vdash": "⊢", "prec": "≺", "succ": "≻", "bmod": "mod", "%": "%", "#": "#", "&": "&",
    "$": "$", "_": "_", "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "langle": "⟨", "rangle": "⟩",
    "lvert": "|", "rvert": "|", "vert": "|", "Vert": "‖", "lVert": "‖", "rVert": "‖", "|": "‖", "{": "{", "}": "}",
    "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "backslash": "\\",
}  # fmt: skip

LARGE = {
    "sum": "∑", "prod": "∏", "coprod": "∐", "bigcup": "⋃", "bigcap": "⋂", "bigoplus": "⨁", "bigotimes": "⨂",
}  # fmt: skip
"""Limits go above and below in a formula of its own."""

INTEGRALS = {"int": "∫", "iint": "∬", "iiint": "∭", "oint": "∮"}

FUNCTIONS = (
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "log", "ln", "lg",
    "exp", "deg", "dim", "ker", "hom", "arg", "Pr",
)  # fmt: skip

LIMITS = ("lim", "max", "min", "sup", "inf", "gcd", "det", "limsup", "liminf")
"""Words whose subscript goes below."""

SPACES = {
    ",": "0.167em", ":": "0.222em", ">": "0.222em", ";": "0.278em", "!": "0em", " ": "0.25em", "quad": "1em",
    "qquad": "2em", "enspace": "0.5em", "thinspace": "0.167em", "~": "0.25em",
}  # fmt: skip

ACCENTS = {
    "hat": "^", "widehat": "^", "bar": "¯", "tilde": "~", "widetilde": "~", "vec": "→", "dot": "˙", "ddot": "¨",
    "overrightarrow": "→", "overbrace": "⏞", "underbrace": "⏟",
}  # fmt: skip

FRAMES = {"boxed": "boxed", "fbox": "boxed", "overline": "over", "underline": "under"}
"""Lines around something, as classes: they need no font that can stretch."""

FENCES = {
    "matrix": ("", ""), "pmatrix": ("(", ")"), "bmatrix": ("[", "]"), "Bmatrix": ("{", "}"), "vmatrix": ("|", "|"),
    "Vmatrix": ("‖", "‖"), "smallmatrix": ("", ""), "array": ("", ""), "cases": ("{", ""), "aligned": ("", ""),
    "align": ("", ""), "align*": ("", ""), "split": ("", ""), "gathered": ("", ""), "gather": ("", ""),
    "gather*": ("", ""), "equation": ("", ""), "equation*": ("", ""), "alignat": ("", ""), "eqnarray*": ("", ""),
}  # fmt: skip
"""Environments and what stands around them."""

ALIGNED = ("aligned", "align", "align*", "split", "alignat", "eqnarray*")
"""Environments whose columns are right and left in turn."""

STYLED = {"mathbb": "double-struck", "mathcal": "script", "mathscr": "script", "mathfrak": "fraktur"}
"""Alphabets, given as characters: MathML Core has no attribute for them."""

_STARTS = {"double-struck": (0x1D538, 0x1D552), "script": (0x1D49C, 0x1D4B6), "fraktur": (0x1D504, 0x1D51E)}
_HOLES = {
    "double-struck": {"C": "ℂ", "H": "ℍ", "N": "ℕ", "P": "ℙ", "Q": "ℚ", "R": "ℝ", "Z": "ℤ"},
    "script": {"B": "ℬ", "E": "ℰ", "F": "ℱ", "H": "ℋ", "I": "ℐ", "L": "ℒ", "M": "ℳ", "R": "ℛ", "e": "ℯ",
               "g": "ℊ", "o": "ℴ"},
    "fraktur": {"C": "ℭ", "H": "ℌ", "I": "ℑ", "R": "ℜ", "Z": "ℨ"},
}  # fmt: skip


def styled(letter: str, alphabet: str) -> str:
    """A Latin letter in another alphabet; anything else as it is.

    Example:
        >>> styled("R", "double-struck")
        'ℝ'
    """
    if letter in _HOLES[alphabet]:
        return _HOLES[alphabet][letter]
    large, small = _STARTS[alphabet]
    if "A" <= letter <= "Z":
        return chr(large + ord(letter) - ord("A"))
    return chr(small + ord(letter) - ord("a")) if "a" <= letter <= "z" else letter
