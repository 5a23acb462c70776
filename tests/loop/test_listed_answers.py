"""The right and wrong answers that a data set lists: with the prompt, and before its graders."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from examples import PROMPT
from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.grading.grader import Grader
from lpfloop.loop.data.file_row import Row
from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.loop.data.text_lines import RowError
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.handles import content_key
from lpfloop.stores.records import Prompt

GRADER = Grader.from_config(GradingConfig())
TOLD = ("It passes through.", "Nothing happens.")
FALSE = ("It grows inside you.", "You fall ill.")


def prompt(**fields: object) -> Prompt:
    return to_prompt(
        Row({"Question": "And if I eat a seed?", **fields}), task=None, split="train", source="s"
    )


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ({"correct_answers": list(TOLD)}, {"incorrect_answers": list(FALSE)}),
        ({"Correct Answers": "; ".join(TOLD)}, {"Incorrect Answers": "; ".join(FALSE)}),
    ],
)
def test_a_prompts_file_may_list_answers_as_truthfulqa_does(right, wrong):
    found = prompt(**right, **wrong)
    assert (found.correct_answers, found.incorrect_answers) == (TOLD, FALSE)
    assert prompt(correct_answers=["None"]).correct_answers is None
    with pytest.raises(RowError, match="'incorrect_answers' must be a list of texts"):
        prompt(incorrect_answers=3)


def test_listed_answers_are_shown_as_known_and_wrong_ones_as_such():
    asked = replace(PROMPT, reference=TOLD[0], correct_answers=TOLD, incorrect_answers=FALSE)
    for aspect in ("truthfulness", "honesty", "helpfulness"):
        text = GRADER.ask(aspect, asked, ["a", "b"]).messages[0].content
        known = text.partition("<reference>")[2].partition("</reference>")[0]
        assert known.strip().splitlines() == [
            TOLD[0],
            "",
            "Answers that are known to be right:",
            f"- {TOLD[1]}",
            "",
            "Answers that are often given, and known to be wrong:",
            *(f"- {text}" for text in FALSE),
        ]
        assert GRADER.shows_reference(aspect, replace(asked, reference=None, correct_answers=None))
    assert (
        "<reference>" not in GRADER.ask("instruction_following", asked, ["a"]).messages[0].content
    )
    alone = GRADER.ask("truthfulness", replace(PROMPT, reference="42"), ["a"]).messages[0].content
    assert "known to be right" not in alone


def test_keys_of_prompts_without_listed_answers_are_as_they_were_and_others_depend_on_them():
    known = content_key([replace(PROMPT, correct_answers=None, incorrect_answers=None)])
    assert known == content_key([PROMPT])
    assert known != content_key([replace(PROMPT, incorrect_answers=FALSE)])


def test_an_import_keeps_several_right_answers_and_the_wrong_ones(tmp_path: Path):
    rows = [
        {"source": "truthful_qa", "instruction": "Why?", "completions": [],
         "correct_answers": list(TOLD), "incorrect_answers": list(FALSE)},
        {"source": "flan", "instruction": "How?", "completions": [],
         "correct_answers": ["So."], "incorrect_answers": ["None"]},
    ]  # fmt: skip
    path = tmp_path / "uf.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    import_files(Import(lake=tmp_path / "lake", name="uf", files=(path,)))
    run = open_run(tmp_path / "lake", "uf")
    found = run.scan("prompts").collect().to_dicts()
    run.close()
    told = [(p["reference"], p["correct_answers"], p["incorrect_answers"]) for p in found]
    assert told == [(None, list(TOLD), list(FALSE)), ("So.", None, None)]
