"""A data set's lists of right and wrong answers: with the prompt, and before its graders."""

from dataclasses import replace

import pytest
from rows import PROMPT

from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.grading.grader import Grader
from lpfloop.loop.data.file_row import Row, RowError
from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.stores.records import Prompt

GRADER = Grader.from_config(GradingConfig())
TOLD = ("It passes through.", "Nothing happens.")
FALSE = ("It grows inside you.", "You fall ill.")


def prompt(**fields: object) -> Prompt:
    return to_prompt(
        Row({"question": "And if I eat a seed?", **fields}), task=None, split="train", source="s"
    )


def test_file_lists_answers():
    for right, wrong in [
        ({"correct_answers": list(TOLD)}, {"incorrect_answers": list(FALSE)}),
        ({"correct_answers": "; ".join(TOLD)}, {"incorrect_answers": "; ".join(FALSE)}),
    ]:
        found = prompt(**right, **wrong)
        assert (found.correct_answers, found.incorrect_answers) == (TOLD, FALSE)
        assert prompt(correct_answers=["None"]).correct_answers is None
        with pytest.raises(RowError, match="incorrect_answers"):
            prompt(incorrect_answers=3)


def test_listed_answers_are_shown_to_graders():
    asked = replace(PROMPT, reference=TOLD[0], correct_answers=TOLD, incorrect_answers=FALSE)
    text = GRADER.ask("truthfulness", asked, ["a", "b"]).messages[0].content
    known = text.partition("<reference>")[2].partition("</reference>")[0]
    assert all(answer in known for answer in (*TOLD, *FALSE))
    assert GRADER.shows_reference("honesty", replace(asked, reference=None, correct_answers=None))
    other = GRADER.ask("instruction_following", asked, ["a"]).messages[0].content
    assert "<reference>" not in other
