"""Problems as slime 0.3 reads them with --input-key prompt --label-key label."""

from gar.errors import DataError
from gar.integrations.slime.data import slime_row
from gar.types import Anchor, Problem, Tags
from tests.support.errors import raises

TALK = [{"role": "user", "content": "3+4="}]


def problem(prompt) -> Problem:
    return Problem(id="n-7", prompt=prompt, answer="7", anchors=(Anchor(text="3 + 4"), Anchor(text=" ")))


def test_slime_row_asks_for_the_format_and_keeps_the_anchors():
    row = slime_row(problem("3+4="), "think-answer", chat=True, tags=Tags(think_open="<t>", think_close="</t>"))
    assert row["prompt"][0]["content"].startswith("3+4=\n\nFirst work the problem out between <t> and </t>.")
    assert (row["label"], row["metadata"]) == ("7", {"id": "n-7", "problem": "3+4=", "anchors": ["3 + 4"]})
    assert slime_row(problem("3+4="), "plain", chat=True)["prompt"] == TALK
    assert slime_row(problem("3+4="), "plain", chat=False)["prompt"] == "3+4="
    with raises(DataError, None, "'n-7'"):  # only a chat template makes text of messages
        slime_row(problem(TALK), "plain", chat=False)
