"""`trl.push_to_hub`: upload the final model to the Hub when the run has ended.

TRL's trainers would upload checkpoints, without the model card of the run and under the name of their folder.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from gar.config import RunConfig
from gar.errors import ConfigError, RecordError, first_line
from gar.models.hub import hub_failures
from gar.records import RunFolder


def check_upload(config: RunConfig) -> None:
    """Whether an upload can begin. Imports no torch. A run that ends in hours would find out then."""
    if config.trl.get("hub_token") is not None:
        raise ConfigError(
            "trl.hub_token is set, and a run records its settings. Run: hf auth login, or set the variable HF_TOKEN.",
            code="trl.hub_token",
        )
    if not wants_upload(config):
        return
    from huggingface_hub import HfApi, constants

    try:
        HfApi().whoami()
    except hub_failures() as error:  # also without a token, or offline
        why = f"{constants.ENDPOINT} cannot be used: {first_line(error).rstrip('.')}"
        raise ConfigError(f"trl.push_to_hub is true, and {why}.", code="trl.push_to_hub") from error


def wants_upload(config: RunConfig) -> bool:
    """Whether the run uploads its model."""
    return config.trl.get("push_to_hub") is True


def make_repository(config: RunConfig, folder: RunFolder) -> str:
    """Make the repository unless it is there, and return its id. Its name is the run's, or `trl.hub_model_id`."""
    from huggingface_hub import HfApi

    name, branch = config.trl.get("hub_model_id") or folder.path.name, config.trl.get("hub_revision")
    with _explained(f"trl.push_to_hub: the repository {name} cannot be made on the Hub"):
        made = HfApi().create_repo(name, private=config.trl.get("hub_private_repo"), exist_ok=True).repo_id
        if branch:
            HfApi().create_branch(made, branch=branch, exist_ok=True)
    return made


def upload_model(config: RunConfig, folder: RunFolder, repository: str) -> str:
    """Upload `model/` with its card, and return the address."""
    from huggingface_hub import HfApi, constants

    model = folder.path / "model"
    command = f"Upload it with: hf upload {repository} {model}"
    with _explained(f"{folder.path}: the run is finished, but its model was not uploaded", command):
        HfApi().upload_folder(
            repo_id=repository,
            folder_path=model,
            commit_message=f"Model of the run {folder.path.name}",
            revision=config.trl.get("hub_revision"),
            ignore_patterns=["training_args.bin"],  # a pickle with paths of this machine
        )
    return f"{constants.ENDPOINT}/{repository}"


@contextmanager
def _explained(what: str, then: str = "") -> Iterator[None]:
    try:
        yield
    except hub_failures() as error:
        why = first_line(error).rstrip(".")
        raise RecordError(f"{what}: {why}. {then}".rstrip(), code="trl.push_to_hub") from error
