"""Execute notebooks from top to bottom and store what their cells print and show, without Jupyter.

    python scripts/execute_notebooks.py [examples/quick_start.ipynb ...]

The default is the notebooks of examples/ that run on the embedded model.
"""

import ast
import base64
import contextlib
import copy
import io
import json
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
DEFAULT = ("quick_start.ipynb",)


def execute(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """A copy of the notebook with the outputs of its code cells, which run in one namespace."""
    done = copy.deepcopy(notebook)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate((cell for cell in done["cells"] if cell["cell_type"] == "code"), start=1):
        cell["execution_count"] = number
        cell["outputs"] = _outputs("".join(cell["source"]), f"{name}, cell {number}", names, number)
    return done


def _outputs(source: str, place: str, names: dict[str, object], number: int) -> list[dict[str, Any]]:
    body = ast.parse(source, place).body
    shown = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), place, "exec"), names)
        value = eval(compile(shown, place, "eval"), names) if shown else None
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        data: dict[str, Any] = {"text/plain": [repr(value) if not hasattr(value, "_repr_png_") else "<picture>"]}
        if hasattr(value, "_repr_png_"):
            data["image/png"] = base64.b64encode(value._repr_png_()).decode()
        outputs.append({"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return outputs


def main(paths: list[str]) -> None:
    """Execute each notebook and write it back."""
    for path in [Path(path) for path in paths] or [EXAMPLES / name for name in DEFAULT]:
        done = execute(json.loads(path.read_text(encoding="utf-8")), path.name)
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: executed, {path.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
