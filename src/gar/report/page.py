"""One HTML file of a report: styles, scripts and data inside, nothing loaded from anywhere.

The data is JSON in a script element that is never run; the scripts put it into the page as text. The policy below
allows these styles and these scripts by their hashes and nothing else, and forbids turning text into HTML.
"""

import base64
import hashlib
import html
from importlib import resources

from gar.report.content import Report, content_json

MAX_BYTES = 8_000_000
SCRIPTS = ("dom.js", "charts.js", "tables.js", "rollouts.js", "page.js")

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(report: Report) -> bytes:
    """The whole file."""
    style = _asset("report.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in SCRIPTS) + "\n})();"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(report.title)}</title>
<style>{style}</style>
</head>
<body>
<noscript><p>This page draws itself with the script inside it: allow scripts for this file.</p></noscript>
<script type="application/json" id="report">{embedded_json(report)}</script>
<script>{script}</script>
</body>
</html>
"""
    return text.encode("utf-8", "replace")


def embedded_json(report: Report) -> str:
    """The report as JSON that no HTML parser can take for markup.

    Raises:
        ValueError: A number is not finite.
    """
    text = content_json(report)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _asset(name: str) -> str:
    return (resources.files("gar.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
