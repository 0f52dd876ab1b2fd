"""Locate a model's files: in the package, in a folder, or on the Hub."""

from pathlib import Path

from gar.models.embedded import embedded_path, embedded_task


def model_path(name: str) -> str:
    """A folder or a Hub id, for `from_pretrained`.

    Args:
        name: "embedded", "embedded:TASK", a folder, or a Hub id.

    Raises:
        ModelError: The package has no such embedded model.
    """
    if task := embedded_task(name):
        return str(embedded_path(task))
    # Adapters record the path of the folder that they are trained on.
    return str(Path(name).absolute()) if Path(name).is_dir() else name
