"""The files of a run. A full disk or a kill never loses what was already written."""

from gar.records.checkpoints import find_checkpoint, marked_checkpoints, rotate_checkpoints, seal_checkpoint
from gar.records.dotted import leaves
from gar.records.evaluations import EvaluatedSet, ProblemCount
from gar.records.files import atomic_file, canonical_hash, write_atomic, write_parquet
from gar.records.rollouts import ROLLOUT_SCHEMA, RolloutRecord, record_table
from gar.records.run import Run, is_run_folder, open_run
from gar.records.run_folder import RunFolder
from gar.records.run_record import RunRecord, RunStatus

__all__ = [
    "ROLLOUT_SCHEMA",
    "EvaluatedSet",
    "ProblemCount",
    "RolloutRecord",
    "Run",
    "RunFolder",
    "RunRecord",
    "RunStatus",
    "atomic_file",
    "canonical_hash",
    "find_checkpoint",
    "is_run_folder",
    "leaves",
    "marked_checkpoints",
    "open_run",
    "record_table",
    "rotate_checkpoints",
    "seal_checkpoint",
    "write_atomic",
    "write_parquet",
]
