"""The input of `gar score`, read and checked before a model is loaded. Importing this imports no torch."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from gar.data.responses import ResponseRow, ResponseSurvey, iter_response_rows, survey_rows
from gar.data.rows import source_name
from gar.errors import DataError
from gar.records.lock import writer_lock
from gar.scoring.job import ScoreJob
from gar.scoring.output import ScoreFiles
from gar.verify.verifier import custom_grader


def score_files(job: ScoreJob) -> ScoreFiles:
    """The output files of a job."""
    return ScoreFiles(job.out or Path(f"{source_name(job.file)}.scores.jsonl"))


def check_input(job: ScoreJob) -> ResponseSurvey:
    """Read the whole input, and raise a `GarError` if the job cannot end well."""
    files = score_files(job)
    with writer_lock(files.finished.path):
        return check_locked_input(job, files)


def check_locked_input(job: ScoreJob, files: ScoreFiles) -> ResponseSurvey:
    """`check_input` for the only writer of the output."""
    files.refuse_loss(job.file, overwrite=job.overwrite)
    if job.verify.verifier is not None:
        custom_grader(job.verify.verifier)
    survey = survey_rows(read_rows(job))
    _refuse_hopeless(job, files, survey)
    return survey


def read_rows(job: ScoreJob) -> Iterator[ResponseRow | DataError]:
    """Each row of the input, or its error."""
    return islice(iter_response_rows(job.file, job), job.limit)


def _refuse_hopeless(job: ScoreJob, files: ScoreFiles, survey: ResponseSurvey) -> None:
    """Reject a file in which no row can be scored, or no response has an anchor."""
    if not survey.num_rows:
        raise DataError(
            f"{job.file}: no rows. Was the file written to the end, and is it the right one?", code="no-rows"
        )
    refuse_all_bad(files, survey.errors, survey.num_rows)
    if not survey.num_anchored:
        raise DataError(
            f"{job.file}: no row has an expert solution in {' or '.join(map(repr, job.expert_fields))}, so no response "
            "has anything to align with. Name its column with --expert-fields.",
            code="no-anchors",
        )


def refuse_all_bad(files: ScoreFiles, errors: Sequence[DataError], num_rows: int) -> None:
    """Raise a `DataError` if no row can be scored."""
    if len(errors) == num_rows:
        files.write_errors(errors)
        raise DataError(
            f"none of {num_rows} rows can be scored. {files.errors} has the reasons. The first: {errors[0]}",
            code="no-rows",
        )
