"""`gar report`: one self-contained HTML page about one or several runs. Importing this imports no torch."""

from typing import Annotated

import tyro
from pydantic import Field

from gar.settings import Settings


class ReportOptions(Settings):
    """Options of a report.

    Example: ReportOptions(max_rollouts=100, token_shares=True)
    """

    max_rollouts: Annotated[int, Field(ge=1)] = 2000
    """Show at most this many rollouts of all runs together, and at most as many samples of evaluations."""
    problems: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """The training problems with their expert solutions, if the data source of the runs is not available."""
    token_shares: bool = False
    """Run the final model of each run to show what each token adds to the alignment."""
