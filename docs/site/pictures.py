"""Draws the pictures of README and site, each for a light and a dark page.

    python -m docs.site.pictures method        # docs/images/method-light.svg and -dark.svg
    python -m docs.site.pictures situations    # from the committed results of paper/comparisons
    python -m docs.site.pictures shorthand     # the same
    python -m docs.site.pictures report RUN    # screenshots of a run's report, with chromium and selenium

Run it from a clone.
"""

import argparse
import io
import math
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

SCHEMES = {
    "light": {
        "panel": "#F6F8FA", "line": "#D0D7DE", "ink": "#1F2328", "muted": "#59636E",
        "expert": "#B35900", "right": "#0969DA", "wrong": "#818B98", "minus": "#D1242F",
    },
    "dark": {
        "panel": "#151B23", "line": "#3D444D", "ink": "#F0F6FC", "muted": "#9198A1",
        "expert": "#F0A04B", "right": "#58A6FF", "wrong": "#7D8590", "minus": "#FF7B72",
    },
}  # fmt: skip

ANCHOR = (0.9, -0.5, 0.2, 0.7, -0.8, 0.1, 0.5, -0.3, -0.6, 0.4)
OTHERS = (
    (0.1, 0.1, 0.9, -0.1, 0.1, 0.8, -0.1, -0.9, 0.1, 0.6),
    (0.2, 0.1, -0.7, 0.8, 0.3, 0.7, -0.9, 0.4, -0.1, -0.6),
    (0.5, 0.3, 0.6, -0.6, 0.5, -0.2, 0.1, -0.8, 0.4, 0.9),
)
RESPONSES = (
    ("3 · 4 = 12, and 12 − 5 = 7", 0.42, 1.14, True),
    ("4 + 4 + 4 − 5 = 7", 0.20, 1.03, True),
    ("It must be 7", -0.20, 1.00, True),
    ("3 · 4 − 5 = 8", None, 0.00, False),
)
"""A response, its alignment, its reward and whether it is correct: the example of docs/how-it-works.md."""
PANELS = [
    (
        f"{model.replace('-', ' ')}, {form}",
        f"shorthand-{model}",
        {
            "plain GRPO": ("grpo",),
            "GAR": (f"gar-{form}",),
            "GAR, other expert": (f"shuffled-{form}",),
            "best imitation": (*(f"{name}-{form}" for name in ("sft", "sft-grpo", "chord")), "rft"),
        },
    )
    for model in ("which-way", "chain")
    for form in ("half", "shorthand")
]
"""The panels of `shorthand`: title, comparison, and the name of each row. Of several labels the best mean is drawn."""
MEAN = statistics.fmean(alignment for _, alignment, _, correct in RESPONSES if correct)


class Drawing:
    """An SVG, element by element, in the colors of one scheme."""

    def __init__(self, width: int, height: int, title: str, description: str, colors: dict[str, str]) -> None:
        self.colors = colors
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="{FONT}" '
            f'font-size="15" role="img" aria-labelledby="title description">',
            f'<title id="title">{escape(title)}</title><desc id="description">{escape(description)}</desc>',
        ]

    def text(self, x: float, y: float, words: str, color: str = "ink", more: str = "") -> None:
        """Write words from (x, y)."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" fill="{self.colors[color]}" {more}>{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, fill: str, edge: str = "", more: str = "") -> None:
        """Draw a rectangle. `fill` is the name of a color or a color."""
        stroke = f'stroke="{self.colors[edge]}" stroke-width="1.5"' if edge else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" '
            f'fill="{self.colors.get(fill, fill)}" {stroke} {more}/>'
        )

    def path(self, way: str, color: str = "muted", more: str = "") -> None:
        """Draw a line."""
        self.parts.append(f'<path d="{way}" stroke="{self.colors[color]}" fill="none" stroke-width="1.5" {more}/>')

    def arrow(self, x: float, y: float, length: float, color: str = "muted") -> None:
        """Draw an arrow to the right."""
        self.path(f"M{x:g} {y:g}h{length:g}m-6 -4l6 4l-6 4", color)

    def dot(self, x: float, y: float, color: str, *, mean: bool = False) -> None:
        """Draw a seed, or the ring of a mean."""
        look = (
            f'r="5.5" fill="none" stroke="{self.colors[color]}" stroke-width="2.2"'
            if mean
            else f'r="3.2" fill="{self.colors[color]}" fill-opacity="0.45"'
        )
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:g}" {look}/>')

    def write(self, path: Path) -> None:
        """Write the file."""
        path.write_text("\n".join([*self.parts, "</svg>\n"]), encoding="utf-8")
        print(path)


def unit(vector: Sequence[float]) -> list[float]:
    """The vector at length 1."""
    length = math.hypot(*vector)
    return [x / length for x in vector]


def at_cosine(cosine: float, other: Sequence[float]) -> list[float]:
    """A vector of length 1 with this cosine to ANCHOR, in the plane of ANCHOR and `other`."""
    anchor = unit(ANCHOR)
    along = sum(x * y for x, y in zip(anchor, other, strict=True))
    across = unit([y - along * x for x, y in zip(anchor, other, strict=True)])
    return [cosine * x + math.sqrt(1 - cosine**2) * y for x, y in zip(anchor, across, strict=True)]


def blend(low: str, high: str, share: float) -> str:
    """A color between two, by its share of the second."""
    pairs = [(int(low[i : i + 2], 16), int(high[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(one + share * (two - one)):02X}" for one, two in pairs)


def method(colors: dict[str, str]) -> Drawing:
    """From rollouts to the bonus, for one problem and four responses."""
    drawing = Drawing(
        880,
        470,
        "From rollouts to the bonus",
        "One problem, an expert solution and four responses. The policy turns the expert solution and each correct "
        "response into one vector, gradient times activation. The cosines with the expert's vector are 0.42, 0.20 and "
        "minus 0.20, their mean 0.14. A response above the mean earns half of the difference as a bonus, so the "
        "rewards are 1.14, 1.03 and 1.00. The wrong response earns 0.",
        colors,
    )
    headings = ("1  Sample and verify", "2  One vector per text", "3  Compare", "4  Reward")
    for x, heading in zip((24, 300, 512, 760), headings, strict=True):
        drawing.text(x, 36, heading, more='font-weight="600"')
    drawing.text(24, 62, "Tom has 3 boxes of 4 pens. He gives", "muted", 'font-size="13.5"')
    drawing.text(24, 80, "away 5. How many are left?", "muted", 'font-size="13.5"')
    drawing.text(300, 62, "gradient × activation,", "muted", 'font-size="13.5"')
    drawing.text(300, 80, "mean over the tokens", "muted", 'font-size="13.5"')
    drawing.text(512, 62, "cosine with the expert's vector", "muted", 'font-size="13.5"')
    drawing.text(760, 62, "GRPO", "muted", 'font-size="13.5"')
    drawing.text(818, 62, "GAR", "right", 'font-size="13.5" font-weight="600"')

    _text_row(drawing, 98, "Expert solution", "3 · 4 = 12. Then 12 − 5 = 7.", "expert")
    _vector_row(drawing, 98, unit(ANCHOR))
    zero, scale = 600, 200
    drawing.text(512, 126, "the direction to compare with", "expert", 'font-size="13.5"')
    for i, (words, alignment, reward, correct) in enumerate(RESPONSES):
        y = 166 + 66 * i
        color = "right" if correct else "wrong"
        _text_row(drawing, y, f"Response {i + 1}  {'✓' if correct else '✗'}", words, color)
        drawing.text(764, y + 29, "1" if correct else "0", "ink" if correct else "muted")
        drawing.text(818, y + 29, f"{reward:.2f}", color, 'font-weight="600"')
        if alignment is None:
            drawing.text(300, y + 29, "no vector needed", "muted", 'font-size="13.5"')
            continue
        _vector_row(drawing, y, at_cosine(alignment, OTHERS[i]))
        low, high = sorted((zero, zero + scale * alignment))
        drawing.box(low, y + 14, high - low, 20, "wrong" if alignment < MEAN else "right", more='fill-opacity="0.35"')
        if alignment > MEAN:
            start = zero + scale * MEAN
            drawing.box(start, y + 14, high - start, 20, "right")
        place = f'x="{high + 8:g}"' if alignment > 0 else f'x="{low - 8:g}" text-anchor="end"'
        drawing.parts.append(
            f'<text {place} y="{y + 29}" fill="{colors["ink"]}" font-size="13.5">{alignment:.2f}</text>'.replace(
                "-0.", "−0."
            )
        )
    drawing.path(f"M{zero} 172V344", "line")
    drawing.path(f"M{zero + scale * MEAN:g} 164V352", "ink", 'stroke-dasharray="4 3"')
    drawing.text(zero + scale * MEAN - 4, 371, f"mean {MEAN:.2f}", more='font-size="13.5"')
    drawing.text(24, 450, "bonus = ½ × the part above the mean, for correct responses only", more='font-weight="600"')
    return drawing


def _text_row(drawing: Drawing, y: float, title: str, words: str, color: str) -> None:
    dashes = 'stroke-dasharray="5 3"' if color == "wrong" else ""
    drawing.box(24, y, 240, 50, "panel", color, dashes)
    drawing.text(36, y + 20, title, color, 'font-size="13.5" font-weight="600"')
    drawing.text(36, y + 40, words, "ink" if color != "wrong" else "muted", f'font-size="13" font-family="{MONO}"')
    if color != "wrong":
        drawing.arrow(268, y + 25, 24, color)


def _vector_row(drawing: Drawing, y: float, vector: Sequence[float]) -> None:
    colors = drawing.colors
    for i, x in enumerate(vector):
        drawing.box(
            300 + 18 * i,
            y + 14,
            16,
            22,
            blend(colors["panel"], colors["right" if x > 0 else "minus"], min(1, abs(x) * 1.7)),
        )


def shorthand(colors: dict[str, str]) -> Drawing:
    """Test pass@1 of every seed, in a panel for each comparison with all rows and seeds. Needs the packages of gar."""
    names = [*PANELS[0][2]]
    scores = [(title, _committed_scores(comparison, rows)) for title, comparison, rows in PANELS]
    most = max((len(seeds) for _, values in scores for seeds in values.values()), default=0)
    panels = [(title, values) for title, values in scores if [*map(len, values.values())] == [most] * len(names)]
    if not panels:
        sys.exit("No complete results of the study in paper/comparisons/results.parquet.")
    lowest = math.floor(10 * min(score for _, values in panels for scores in values.values() for score in scores)) / 10
    left, width, gap, top, step = 190, 190, 30, 64, 38
    bottom = top + step * len(names)
    told = [
        f"{title}: " + ", ".join(f"{n} {statistics.fmean(v):.3f}" for n, v in values.items())
        for title, values in panels
    ]
    drawing = Drawing(
        left + (width + gap) * len(panels),
        bottom + 64,
        "Test pass@1 after training",
        f"Means. {'. '.join(told)}.",
        colors,
    )
    for i, name in enumerate(names):
        drawing.text(24, top + step * (i + 0.5) + 5, name, "right" if name == "GAR" else "ink")
    for i, (title, values) in enumerate(panels):
        start = left + (width + gap) * i
        drawing.text(start, 36, title, more='font-weight="600"')
        for tick in range(10, round(10 * lowest) - 1, -1 if lowest > 0.4 else -2):
            x = start + width * (tick / 10 - lowest) / (1 - lowest)
            drawing.path(f"M{x:g} {top - 8}V{bottom}", "line")
            drawing.text(x, bottom + 20, f"{tick / 10:g}", "muted", 'font-size="12.5" text-anchor="middle"')
        for name, scores in values.items():
            places = [start + width * (score - lowest) / (1 - lowest) for score in scores]
            y, color = top + step * (names.index(name) + 0.5), "right" if name == "GAR" else "ink"
            for x in places:
                drawing.dot(x, y, color)
            drawing.dot(statistics.fmean(places), y, color, mean=True)
    drawing.text(left, bottom + 48, "Test pass@1. Dots are seeds, rings their means.", "muted", 'font-size="13"')
    return drawing


def _committed_scores(comparison: str, rows: Mapping[str, Sequence[str]]) -> dict[str, list[float]]:
    """Test pass@1 of every seed, by the name of the row."""
    from paper.comparisons.results import NAMES, read_results

    if comparison not in NAMES:
        return {}
    found = read_results(comparison)
    measured = {label: [run.sets["test"] for run in found.of_row(label).values()] for label in found.against}
    scores = {
        label: [statistics.fmean(part.num_correct.values()) / part.num_samples for part in parts]
        for label, parts in measured.items()
    }
    there = {name: [scores[label] for label in labels if label in scores] for name, labels in rows.items()}
    return {name: max(lists, key=statistics.fmean) for name, lists in there.items() if lists}


def situations(colors: dict[str, str]) -> Drawing:
    """Means of all methods in every situation, and GAR minus GRPO. Needs the packages of gar."""
    from paper.comparisons.budget import interval
    from paper.comparisons.situations import (
        BASELINE,
        FEWEST_SEEDS,
        METHODS,
        REWARD,
        SITUATIONS,
        paired_leads,
        scores,
    )

    found = [(row, {name: part for name in METHODS if (part := scores(row, name))}) for row in SITUATIONS]
    found = [(row, parts) for row, parts in found if len(parts.get(REWARD, {})) >= FEWEST_SEEDS]
    left, width, top, step = 262, 370, 92, 38
    bottom = top + step * len(found)
    told = [
        f"{row.title}, {row.task}, {row.steps} steps: "
        + ", ".join(f"{name} {statistics.fmean(part.values()):.3f}" for name, part in parts.items())
        for row, parts in found
    ]
    drawing = Drawing(
        880, bottom + 70, "When does the reward pay?", f"Means of test pass@1. {'. '.join(told)}.", colors
    )
    x = 24.0
    for name in (name for name in METHODS if any(name in parts for _, parts in found)):
        _mark(drawing, x + 6, 31, name)
        drawing.text(x + 18, 36, name, more='font-size="13.5"')
        x += 44 + 7.6 * len(name)
    drawing.text(left + width + 32, 72, "GAR minus GRPO", more='font-size="13.5" font-weight="600"')
    for tick in range(0, 11, 2):
        x = left + width * tick / 10
        drawing.path(f"M{x:g} {top - 8}V{bottom}", "line")
        drawing.text(x, bottom + 20, f"{tick / 10:g}", "muted", 'font-size="12.5" text-anchor="middle"')
    for i, (row, parts) in enumerate(found):
        y = top + step * (i + 0.5)
        drawing.text(24, y - 2, row.title, more='font-size="14"')
        drawing.text(24, y + 14, f"{row.task}, {row.steps} steps at {row.rate}", "muted", 'font-size="12"')
        for name, part in reversed(parts.items()):
            _mark(drawing, left + width * statistics.fmean(part.values()), y, name)
        leads = paired_leads(parts[REWARD], parts[BASELINE])
        low, high = interval(leads)
        color = "right" if low > 0 else "minus" if high < 0 else "muted"
        lead = f"{statistics.fmean(leads):+.3f}".replace("-", "−")
        drawing.text(left + width + 32, y + 5, lead, color, 'font-weight="600"')
        ends = f"{low:+.3f} to {high:+.3f}".replace("-", "−")
        drawing.text(left + width + 102, y + 5, ends, "muted", 'font-size="12"')
    words = "Test pass@1, means over 4 to 10 seeds. Blue: GAR is ahead of GRPO (95% interval over seeds). Red: behind."
    drawing.text(24, bottom + 52, words, "muted", 'font-size="13"')
    return drawing


def _mark(drawing: Drawing, x: float, y: float, method: str) -> None:
    """The mark of a method: a blue dot for GAR, a ring for GRPO, squares for SFT, a diamond for self-distillation."""
    color = {"GAR-GRPO": "right", "plain GRPO": "ink"}.get(method, "expert")
    fill = "none" if method in ("plain GRPO", "SFT, then GRPO") else drawing.colors[color]
    look = f'fill="{fill}" stroke="{drawing.colors[color]}" stroke-width="2"'
    if method in ("GAR-GRPO", "plain GRPO"):
        drawing.parts.append(f'<circle cx="{x:.1f}" cy="{y:g}" r="5.5" {look}/>')
        return
    turn = f'transform="rotate(45 {x:.1f} {y:g})"' if method == "self-distillation" else ""
    drawing.parts.append(f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:g}" width="9" height="9" {look} {turn}/>')


PICTURES = {"method": method, "situations": situations, "shorthand": shorthand}


def screenshots(run: Path) -> None:
    """Take the top of a run's report in both schemes. Needs chromium, chromedriver, selenium and Pillow."""
    from PIL import Image
    from selenium import webdriver

    from gar.report.build import write_report

    options, driver = webdriver.ChromeOptions(), shutil.which("chromedriver")
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1180,1143"):
        options.add_argument(flag)
    with tempfile.TemporaryDirectory() as folder, webdriver.Chrome(options, webdriver.ChromeService(driver)) as browser:
        write_report([run], Path(folder) / "run.html")
        for scheme in SCHEMES:
            media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
            browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            browser.get((Path(folder) / "run.html").as_uri())
            picture = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
            path = IMAGES / f"report-{scheme}.png"
            picture.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
            print(path)


def main() -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", choices=[*PICTURES, "report"])
    parser.add_argument("run", nargs="?", type=Path, help="for report: the folder of a run")
    options = parser.parse_args()
    if options.picture == "report":
        if not options.run:
            parser.error("report needs the folder of a run")
        screenshots(options.run)
        return
    for scheme, colors in SCHEMES.items():
        PICTURES[options.picture](colors).write(IMAGES / f"{options.picture}-{scheme}.svg")


if __name__ == "__main__":
    main()
