"""Pages show pictures of `results/`, which lies beside `docs/`: bring them into the site, and point there."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_RESULTS = "results"
_BESIDE = f"](../{_RESULTS}/"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add every picture of `results/`, under its own path."""
    root = Path(config.docs_dir).parent
    for path in sorted((root / _RESULTS).rglob("*.png")):
        files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """The links of pages work on GitHub as they stand; in the site `results/` is inside."""
    return markdown.replace(_BESIDE, f"]({_RESULTS}/")
