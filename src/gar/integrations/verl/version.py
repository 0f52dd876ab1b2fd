"""The one version of verl that this plugin is written for."""

from importlib.metadata import PackageNotFoundError, version

from gar.errors import ConfigError

SUPPORTED = "0.9.1"


def check_version() -> None:
    """Reject any other version of verl, before anything of it is imported.

    The plugin overrides methods of verl that carry no promise, and verl's trainers change from release to release.

    Raises:
        ConfigError: verl is missing or another version.
    """
    try:
        installed = version("verl")
    except PackageNotFoundError as error:
        raise ConfigError(
            f"gar.integrations.verl needs verl=={SUPPORTED}, which is not installed: pip install verl=={SUPPORTED}, in "
            "an environment of its own (it wants an older transformers than gar train)"
        ) from error
    if installed != SUPPORTED:
        raise ConfigError(
            f"gar.integrations.verl is written for verl=={SUPPORTED} and found {installed}: it overrides methods that "
            f"other versions name or call differently. Install verl=={SUPPORTED}."
        )
