"""Exports: readable by the target's loader, whole or absent, and repeatable."""

import csv
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from rows import CANDIDATE, CRITIQUE, DEMONSTRATION, PAIR, PROMPT
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.data.files import InputError, placed_rows
from lpfloop.loop.lake.exports import (
    export as exporting,
)
from lpfloop.loop.lake.exports.export import Export, export_table
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import RunWriter
from lpfloop.stores.outputs import open_sink
from lpfloop.stores.records import (
    Candidate,
    Critique,
    Demonstration,
    Message,
    Pair,
    Prompt,
)
from lpfloop.stores.schemas import plain

RUN = "made"


def system(text):
    return (Message(role="system", content="Be brief."), Message(role="user", content=text))


PROMPTS = [
    PROMPT,
    replace(PROMPT, prompt_id="prompt-2", messages=system("Hi?"), task="general", reference=None),
    replace(PROMPT, prompt_id="prompt-3", split="held-out"),
]
CANDIDATES = [
    CANDIDATE,
    replace(CANDIDATE, candidate_id="cand-2", text="6", kind="refinement", parent_id="cand-1"),
    replace(CANDIDATE, candidate_id="cand-3", prompt_id="prompt-2", text="Ho."),
]
CRITIQUES = [
    CRITIQUE,
    replace(CRITIQUE, critique_id="crit-3", candidate_id="cand-3", prompt_id="prompt-2"),
    replace(CRITIQUE, critique_id="crit-h", critic="human:ada", text="seen by me"),
]
PAIRS = [PAIR, replace(PAIR, pair_id="pair-2", prompt=system("Hi?"), prompt_id="prompt-2")]
DEMONSTRATIONS = [DEMONSTRATION, replace(DEMONSTRATION, demonstration_id="demo-2")]
ROWS = {
    Prompt: PROMPTS,
    Candidate: CANDIDATES,
    Critique: CRITIQUES,
    Pair: PAIRS,
    Demonstration: DEMONSTRATIONS,
}
CONFIG = {"critic": {"aspects": "tiny"}, "recipe": {"name": "rlrf", "top_k": 1}}


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake with one run that has a few rows of each table, all in iteration 1."""
    folder = tmp_path_factory.mktemp("export") / "lake"
    store = RunWriter(Journal.create(folder / "runs" / RUN, {"config": json.dumps(CONFIG)}))
    store.journal.plan(1, "made", "identity", lambda: ["0" * 64])
    store.commit("0" * 64, ROWS, {})
    store.flush()
    store.close()
    return folder


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def export(lake, tmp_path):
    def write(table, form, **options):
        target = tmp_path / f"{form}-{table}"
        export_table(Export(lake=lake, name=RUN, table=table, form=form, target=target, **options))
        return target

    return write


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_forms_of_trainers(export):
    """LLaMA-Factory 0.9.5, axolotl 0.19, OpenRLHF 0.11.2, verl 0.9.1: in their loaders' formats."""
    for row in lines(export("pairs", "llamafactory") / "train.jsonl"):
        assert [turn["from"] for turn in row["conversations"] if turn["from"] != "system"] == [
            "human"
        ]
        assert row["chosen"]["from"] == row["rejected"]["from"] == "gpt"
    row = lines(export("pairs", "axolotl") / "train.jsonl")[0]
    assert row["messages"] == plain(PAIR.prompt)
    assert row["chosen"] == plain(PAIR.chosen[0])
    for row in lines(export("pairs", "openrlhf") / "train.jsonl"):
        assert row["chosen"][:-1] == row["rejected"][:-1]
        assert row["chosen"][-1]["role"] == row["rejected"][-1]["role"] == "assistant"
    said = ["user", "assistant"]
    row = lines(export("demonstrations", "openrlhf") / "train.jsonl")[0]
    assert [turn["role"] for turn in row["prompt"] + row["completion"]] == said
    rows = pq.read_table(export("prompts", "verl") / "train.parquet").to_pylist()
    assert [row["extra_info"]["index"] for row in rows] == ["prompt-1", "prompt-2"]
    assert rows[0]["reward_model"] == {"style": "rule", "ground_truth": "5"}


def test_every_table_as_it_is(export):
    target = export("pairs", "parquet")
    assert pq.read_table(target / "train.parquet").to_pylist() == plain(PAIRS)
    assert lines(export("critiques", "jsonl") / "train.jsonl") == plain(CRITIQUES)
    with (export("candidates", "csv") / "train.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["5", "6", "Ho."]


def test_csv_cells_escape_formulas(tmp_path, subtests):
    for text, cell in [
        ('=HYPERLINK("http://evil.example/","x")', '\'=HYPERLINK("http://evil.example/","x")'),
        ("-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"),
        ("＝1", "'＝1"),  # noqa: RUF001
        ("-5", "-5"),
    ]:
        with subtests.test(text=text, cell=cell):
            sink = open_sink(
                tmp_path / "a.csv", pa.schema([("text", pa.string()), ("n", pa.int64())])
            )
            sink.put({"text": text, "n": -3})
            sink.put({"text": None, "n": None})
            sink.close()
            with (tmp_path / "a.csv").open(newline="") as file:
                assert list(csv.reader(file)) == [["text", "n"], [cell, "-3"], ["", ""]]
            first, _ = placed_rows(tmp_path / "a.csv")
            assert first[1]["text"] == text


def test_card(export):
    text = (export("pairs", "trl-dpo", license="mit") / "README.md").read_text()
    _, header, body = text.split("---\n", 2)
    card = yaml.safe_load(header)
    assert card["license"] == "mit"
    assert card["tags"] == ["lpfloop", "trl", "preference", "dpo"]
    assert card["configs"][0]["data_files"] == [{"split": "train", "path": "train.parquet"}]
    for said in ("| train.parquet | 2 |", "human:ada", '"top_k": 1'):
        assert said in body


def test_failed_export_writes_no_file(lake, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting, "card", fail)
    job = Export(lake=lake, name=RUN, table="pairs", form="jsonl", target=tmp_path / "out")
    with pytest.raises(OSError, match="No space"):
        export_table(job)
    assert list(tmp_path.iterdir()) == []


def test_refused_exports(lake, tmp_path, subtests):
    for arguments, said in [
        (("critiques", "--as", "trl-dpo"), "trl-dpo"),
        (("pairs", "--as", "xml"), "xml"),
        (("pairs", "--as", "csv", "--iteration", "7"), "iteration 7"),
    ]:
        with subtests.test(arguments=arguments, said=said):
            told = invoke("export", RUN, *arguments, "--output", tmp_path / "out", "--lake", lake)
            assert told.exit_code == Exit.BAD_INPUT
            assert said in told.stderr
            assert list(tmp_path.iterdir()) == []


PAIR_FORMS = (
    *("trl-dpo", "trl-reward", "llamafactory", "axolotl", "openrlhf", "ultrafeedback-binarized"),
    *("jsonl", "parquet", "csv"),
)


@pytest.fixture
def come_back(tmp_path):
    """Import an export, and return a table of the new run."""

    def rows(folder, table, columns):
        import_files(Import(lake=tmp_path / "lake", name="back", files=(folder,)))
        back = open_run(tmp_path / "lake", "back")
        found = back.scan(table).select(columns).collect().to_dicts()
        back.close()
        return found

    return rows


@pytest.mark.parametrize("form", PAIR_FORMS)
def test_pairs_come_back(form, export, come_back):
    columns = ["prompt", "chosen", "rejected", "prompt_id"]
    found = come_back(export("pairs", form), "pairs", columns)
    assert found == [{name: plain(getattr(pair, name)) for name in columns} for pair in PAIRS]


@pytest.mark.parametrize("form", ["ultrafeedback-binarized", "jsonl", "parquet", "csv"])
def test_rewards_come_back(form, export, come_back):
    columns = ["chosen_reward", "rejected_reward"]
    found = come_back(export("pairs", form), "pairs", columns)
    assert found == [{name: getattr(pair, name) for name in columns} for pair in PAIRS]


def test_labelled_answers_come_back(export, come_back):
    """A row of KTO's form has one answer of a pair, so its label returns and no pair."""
    folder = export("pairs", "trl-kto")
    found = come_back(folder, "critiques", ["critic", "aspects"])
    assert [row["aspects"][0]["rating"] for row in found] == [1, -1, 1, -1]
    assert {row["critic"] for row in found} == {"label:label"}


@pytest.mark.parametrize("form", ["trl-sft", "llamafactory", "axolotl", "openrlhf", "verl"])
def test_demonstrations_come_back(form, export, come_back):
    found = come_back(export("demonstrations", form), "candidates", ["text", "prompt_id"])
    assert {(row["text"], row["prompt_id"]) for row in found} == {("5", "prompt-1")}


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_ratings_come_back(form, export, come_back):
    columns = ["chosen_ratings", "rejected_ratings"]
    found = come_back(export("pairs", form), "pairs", columns)
    assert found == [{name: list(getattr(pair, name)) for name in columns} for pair in PAIRS]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_prompts_come_back(form, export, come_back):
    columns = ["prompt_id", "task", "messages", "reference", "checks", "split"]
    found = come_back(export("prompts", form), "prompts", columns)
    assert found == [{name: plain(getattr(p, name)) for name in columns} for p in PROMPTS]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
def test_candidates_alone_cannot_come_back(form, export, come_back):
    with pytest.raises(InputError, match="--run must name"):
        come_back(export("candidates", form), "candidates", ["text"])


def test_references_come_back_from_verl(export, come_back):
    columns = ["task", "messages", "reference", "source"]
    found = come_back(export("prompts", "verl"), "prompts", columns)
    assert found == [{name: plain(getattr(p, name)) for name in columns} for p in PROMPTS[:2]]
