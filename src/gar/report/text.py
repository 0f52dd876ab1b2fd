"""Groups for the terminal: the responses of a problem by alignment, beside its expert solution."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from gar.errors import UsageError, printable
from gar.report.page import ShownGroup, ShownResponse

_MOST_CHARACTERS = 2000
"""The most characters of a text that are printed. The page shows all of it."""


def chosen_groups(groups: Sequence[ShownGroup], *, step: int | None, skip: int, most: int) -> Sequence[ShownGroup]:
    """Up to `most` groups, the clearest signal first, as on the page. `step` leaves out all other steps.

    Raises:
        UsageError: No group is left.
    """
    found = [group for group in groups if step in (None, group.step)]
    if len(found) <= skip:
        steps = sorted({group.step for group in groups if group.step is not None})
        known = f", {len(steps)} steps from {steps[0]} to {steps[-1]}" if steps else ""
        raise UsageError(
            f"no group to print: {len(found)} fit, and --skip is {skip}. There are {len(groups)} groups{known}. "
            "--max-rollouts draws more of a long run."
        )
    return sorted(found, key=_signal, reverse=True)[skip : skip + most]


def _signal(group: ShownGroup) -> float:
    """How far apart the alignments of a group's right responses are."""
    given = [each.numbers["alignment"] for each in group.responses if each.verdict == "right"]
    known = [value for value in given if value is not None]
    return max(known) - min(known) if known else 0.0


def group_table(group: ShownGroup, run: str) -> Table:
    """A group as a table. Control characters of prompt, responses and names are shown, not obeyed."""
    place = f"step {group.step}" if group.moment is None else f"{group.set_name}, {group.moment} training"
    name = _text(f"{run}, {place}, problem {group.problem_id}, gold answer {group.gold}", "bold")
    title = Text("\n").join([name, _text(group.prompt)])
    table = Table(title=title, title_justify="left", title_style="", caption_justify="left", expand=True)
    scored = any(each.numbers["alignment"] is not None for each in group.responses)
    order = "highest alignment first" if scored else "right ones first"
    for heading in (f"responses, {order}", "expert solution"):
        table.add_column(heading, ratio=1, overflow="fold")
    ordered = sorted(group.responses, key=_place)
    responses = Text("\n\n").join(Text("\n").join([_heading(each), _text(each.text)]) for each in ordered)
    expert = _text(group.expert) if group.expert else Text("No expert solution is known here.", "dim")
    table.add_row(responses, expert)
    return table


def _place(response: ShownResponse) -> tuple[bool, float, bool]:
    alignment = response.numbers["alignment"]
    return alignment is None, -(alignment or 0.0), response.verdict != "right"


def _heading(response: ShownResponse) -> Text:
    numbers = {name: response.numbers[name] for name in ("alignment", "advantage")}
    given = [f"{name} {value:.3f}" for name, value in numbers.items() if value is not None]
    given += [f"reward {response.reward}"] if response.reward else []
    color = "green" if response.verdict == "right" else "red"
    return _text(", ".join([f"{response.index + 1}: {response.verdict}", *given]), f"bold {color}")


def _text(text: str, style: str = "") -> Text:
    left_out = len(text) - _MOST_CHARACTERS
    end = f" [... {left_out:,} characters more]" if left_out > 0 else ""
    return Text(printable(text[:_MOST_CHARACTERS]) + end, style)
