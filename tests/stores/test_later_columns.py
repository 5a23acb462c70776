"""A column that a table has gained costs nothing where it is empty, and is read everywhere."""

from contextlib import closing
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from examples import CANDIDATE
from lpfloop.loop.cli.app import app
from lpfloop.stores.digest import canonical_rows, run_digest
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunReader, RunWriter, run_folder
from lpfloop.stores.packing import pack_all
from lpfloop.stores.records import Candidate
from lpfloop.stores.schemas import to_table


def candidate(number: int, reasoning: str | None) -> Candidate:
    return replace(CANDIDATE, candidate_id=f"cand-{number:03d}", reasoning=reasoning)


ROWS = {
    f"{number}": [
        candidate(2 * number, None),
        candidate(2 * number + 1, f"2 and 3, case {number}" if number % 3 else None),
    ]
    for number in range(12)
}


@pytest.fixture
def writer(tmp_path):
    journal = Journal.create(run_folder(tmp_path / "lake", "a"), {})
    with closing(RunWriter(journal)) as writer:
        writer.journal.plan(1, "sample", "x", lambda: list(ROWS))
        for unit, rows in ROWS.items():
            writer.commit(unit, {Candidate: rows}, {})
        writer.flush()
        yield writer


def asked(writer: RunWriter, sql: str) -> list[str]:
    lake = str(writer.folder.parent.parent)
    told = CliRunner().invoke(app, ["sql", sql, "--lake", lake, "--format", "csv"])
    assert told.exit_code == 0, told.stderr
    return told.stdout.split()


def test_a_part_without_a_thought_has_the_columns_it_always_had(writer):
    with closing(RunReader(writer.folder)) as reader:
        parts = {part.unit: part for part in reader.journal.parts(table="candidates")}
    columns = {unit: len(writer._read(part).column_names) for unit, part in parts.items()}
    whole = len(to_table(Candidate, [CANDIDATE]).column_names)
    assert columns["0"] == whole - 1
    assert columns["1"] == whole


def test_every_reader_has_the_column_before_and_after_packing(writer):
    counts = "select count(*) as rows, count(reasoning) as thoughts from candidates"
    before = run_digest(writer.folder), asked(writer, counts)
    sizes = {part.unit: part for part in writer.journal.parts(table="candidates")}
    assert before[1] == ["rows,thoughts", "24,8"]
    assert pack_all(writer.journal) == len(ROWS)
    assert (run_digest(writer.folder), asked(writer, counts)) == before
    for unit, rows in ROWS.items():
        assert writer.rows(Candidate, unit) == rows
        assert writer.verified_path(Candidate, unit).stem == sizes[unit].sha256
    with closing(RunReader(writer.folder)) as reader:
        found = reader.scan("candidates").sort("candidate_id").collect()
    assert found["reasoning"].to_list() == [row.reasoning for rows in ROWS.values() for row in rows]


def test_a_lake_in_which_nothing_thinks_has_an_empty_column(tmp_path):
    folder = run_folder(tmp_path / "lake", "a")
    with closing(RunWriter(Journal.create(folder, {}))) as writer:
        writer.journal.plan(1, "sample", "x", lambda: ["1"])
        writer.commit("1", {Candidate: [CANDIDATE]}, {})
        writer.flush()
        assert asked(writer, "select coalesce(reasoning, 'none') as r from candidates") == [
            "r",
            "none",
        ]


def test_the_digest_is_silent_of_a_thought_that_is_not_there():
    texts = list(canonical_rows(to_table(Candidate, [CANDIDATE, candidate(1, "so")])))
    assert "reasoning" not in texts[0]
    assert '"reasoning":"so"' in texts[1]
