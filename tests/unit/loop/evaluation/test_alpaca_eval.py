"""Files of annotations and of difficulties: how they are read, and what is refused."""

import json
import re

import pytest

from lpfloop.loop.data.files import InputError
from lpfloop.loop.evaluation.alpaca_eval import read_annotations, source_of
from lpfloop.loop.evaluation.instruction_difficulty import difficulties_of
from lpfloop.loop.evaluation.result_sources import refuse_unlike


def row(number, preference, **fields):
    return {
        "instruction": f"instruction {number}",
        "output_1": "of the reference",
        "output_2": "of the model",
        "generator_1": "davinci",
        "generator_2": "alpaca",
        "preference": preference,
    } | fields


def written(folder, rows, name="annotations.json"):
    path = folder / name
    path.write_text(json.dumps(rows))
    return path


def test_leads_over_other_outputs_are_refused(tmp_path):
    mine = read_annotations(written(tmp_path, [row(n, 2) for n in range(6)]))
    rows = [row(n, 1, output_1=f"other {n // 5}") for n in range(6)]
    other = read_annotations(written(tmp_path, rows, "other.json"))
    with pytest.raises(InputError, match=r"output_1.* for 6 of 6 prompts"):
        refuse_unlike(source_of(tmp_path / "a", mine), source_of(tmp_path / "b", other))


BAD = {
    "'preference' is 3; it must be": row(1, 3),
    "'preference' is nan; it must be": row(1, float("nan")),
    "'preference' must be a number or null, but is true or false": row(1, True),
    "'output_2' must be a text, but is null": row(1, 2, output_2=None),
    "'preference' is missing": {k: v for k, v in row(1, 2).items() if k != "preference"},
}


def test_bad_rows_are_refused(tmp_path, subtests):
    for reason, bad in BAD.items():
        with subtests.test(reason=reason):
            path = written(tmp_path, [row(0, 1), bad])
            with pytest.raises(InputError, match=re.escape(f"{path}, row 2: {reason}")):
                read_annotations(path)


def test_bad_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="holds no preference that was read"):
        read_annotations(written(tmp_path, [row(0, None)]))
    with pytest.raises(InputError, match="names 2 models"):
        read_annotations(written(tmp_path, [row(0, 1), row(1, 1, generator_2="llama")]))


def test_difficulties_of_a_table(tmp_path):
    path = tmp_path / "difficulty.csv"
    path.write_text("instruction,difficulty\na,0.5\nb,-1\n")
    assert difficulties_of(path, ["b", "a"]) == [-1, 0.5]
