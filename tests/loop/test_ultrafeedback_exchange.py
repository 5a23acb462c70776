"""UltraFeedback's published rows in, graded, binarised, and out again as they came."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.data.files import InputError
from lpfloop.loop.lake.derive.derivation_request import DerivationRequest
from lpfloop.loop.lake.derive.rederive import rederive
from lpfloop.loop.lake.exports.export import Export, export_table
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.derived import DerivedError, scan_derived

Row = dict[str, Any]
SAMPLE = "ultrafeedback_binarized_300.jsonl"
TYPED = ("truthfulness", "helpfulness")


def annotations(*ratings: str) -> Row:
    """The annotations of the four aspects, as published."""
    aspects = ("instruction_following", "honesty", *TYPED)
    return {
        aspect: {
            "Type": ["1", "3"],
            "Rationale": "Which kinds.",
            "Rating": rating,
            "Rationale For Rating": "Why so.",
        }
        if aspect in TYPED
        else {"Rating": rating, "Rationale": f"About {aspect}: “só”."}
        for aspect, rating in zip(aspects, ratings, strict=True)
    }


def completion(
    model: str, overall: object, *ratings: str, text: str | None = None, mended: bool = True
) -> Row:
    """A published completion; `mended` as the data set's own repair leaves it."""
    numbers = [float(rating) for rating in ratings if rating != "N/A"]
    return {
        "annotations": annotations(*ratings),
        "custom_system_prompt": "Think of who asks: be plain.",
        "model": model,
        "principle": "helpfulness",
        "response": f"{model} says so." if text is None else text,
        "critique": f"What {model} says\ncould be better.",
        "overall_score": overall,
        **({"fine-grained_score": sum(numbers) / len(numbers)} if mended else {}),
    }


def published(instruction: str, *completions: Row, source: str = "flan", **more: object) -> Row:
    return {
        "source": source,
        "instruction": instruction,
        "models": [one["model"] for one in completions],
        "completions": list(completions),
        "correct_answers": ["None"],
        "incorrect_answers": ["None"],
        **more,
    }


ROWS = [
    published(
        "Name a prime.",
        completion("m-1", 8.5, "5", "N/A", "5", "4"),
        completion("m-2", 7, "3", "2", "4", "3"),
        completion("m-3", "6", "2", "2", "1", "2", text=""),
        completion("m-4", 9.0, "5", "5", "5", "5"),
    ),
    published(
        "Name a prime.",
        completion("m-1", 1, "1", "1", "1", "1"),
        source="truthful_qa",
        correct_answers=["2", "3 is one."],
        incorrect_answers=["1", "4"],
    ),
    published("Name a colour.", completion("m-5", 3, "3", "3", "3", "3"), correct_answers=["Red"]),
]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def written(*rows: Row) -> Path:
        path = tmp_path / "published.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return path

    return written


def imported(lake: Path, path: Path, name: str = "uf", **more: Any) -> None:
    import_files(Import(lake=lake, name=name, files=(path,), source="uf", **more))


def exported(lake: Path, target: Path, table: str, form: str, **more: Any) -> bytes:
    done = export_table(Export(lake=lake, name="uf", table=table, form=form, target=target, **more))
    (file,) = done.files
    return (target / file).read_bytes()


def stored(lake: Path, table: str, name: str = "uf") -> list[Row]:
    run = open_run(lake, name)
    rows = run.scan(table).collect().to_dicts()
    run.close()
    return rows


def test_published_rows_come_out_byte_for_byte(lake, write, tmp_path):
    path = write(*ROWS)
    imported(lake, path)
    assert exported(lake, tmp_path / "out", "candidates", "ultrafeedback") == path.read_bytes()


def test_what_went_out_comes_in_as_the_same_rows(lake, write, tmp_path):
    imported(lake, write(*ROWS))
    exported(lake, tmp_path / "out", "candidates", "ultrafeedback")
    imported(lake, tmp_path / "out" / "ultrafeedback.jsonl", "again")
    for table in ("prompts", "candidates", "grades", "critiques", "rewards", "receipts"):
        assert stored(lake, table, "again") == stored(lake, table)


def test_ratings_types_and_reasons_become_grades(lake, write):
    imported(lake, write(ROWS[0]))
    first = {row["aspect"]: row for row in stored(lake, "grades")[:5]}
    assert {name: row["rating"] for name, row in first.items()} == {
        "instruction_following": 5,
        "truthfulness": 5,
        "honesty": None,
        "helpfulness": 4,
        "overall": 8.5,
    }
    assert first["honesty"]["status"] == "not_applicable"
    assert first["truthfulness"]["types"] == ["1", "3"]
    assert first["truthfulness"]["rationale"] == "Why so."
    assert first["truthfulness"]["type_rationale"] == "Which kinds."
    assert first["overall"]["rationale"].startswith("What m-1 says")
    (prompt,) = stored(lake, "prompts")
    assert prompt["source"] == "flan"
    assert stored(lake, "candidates")[0]["principle"] == (
        "helpfulness: Think of who asks: be plain."
    )


@pytest.mark.parametrize(
    ("ratings", "mended", "rating", "status"),
    [
        (("2", "1", "3", "2"), False, 1, "scored"),
        (("2", "1", "3", "2"), True, 1, "scored"),
        (("3", "3", "3", "2"), False, None, "doubtful"),
        (("4", "4", "4", "4"), False, None, "doubtful"),
        (("4", "4", "4", "4"), True, 10, "scored"),
        (("5", "4", "4", "4"), False, 10, "scored"),
    ],
)
def test_a_ten_that_was_a_one_is_repaired_by_the_mean(
    lake, write, tmp_path, ratings, mended, rating, status
):
    """The published data's bug: scores of at most 1 were multiplied by ten."""
    imported(lake, write(published("x?", completion("m", 10, *ratings, mended=mended))))
    overall = stored(lake, "grades")[-1]
    assert (overall["aspect"], overall["rating"], overall["status"]) == ("overall", rating, status)
    fate = status if rating is None else "kept" if rating == 10 else "repaired"
    told = {row["outcome"]: row for row in stored(lake, "receipts")}
    assert told[fate]["count"] == 1
    assert told[fate]["examples"] == [overall["candidate_id"]]
    assert sum(row["count"] for row in told.values()) == 1
    scores = {row["reward_model"]: row["score"] for row in stored(lake, "rewards")}
    assert scores.get("uf:overall_score") == rating
    row = json.loads(exported(lake, tmp_path / "out", "candidates", "ultrafeedback"))
    assert row["completions"][0]["overall_score"] == rating


def two_scores(chosen: float, rejected: float) -> Row:
    told = {"score_chosen": chosen, "score_rejected": rejected}
    return {"prompt": "Why?", "chosen": "So.", "rejected": "Never.", "metadata": told}


@pytest.mark.parametrize(
    ("scores", "kept", "told"),
    [
        ((10.0, 5.0), False, [(None, "doubtful"), (5, "scored")]),
        ((10.0, 5.0), True, [(10, "scored"), (5, "scored")]),
        # Where 1s had become 10s there was no 1 left.
        ((10.0, 1.0), False, [(10, "scored"), (1, "scored")]),
    ],
)
def test_a_ten_of_the_binarised_form_is_kept_where_the_row_or_whoever_imports_it_says_so(
    lake, write, scores, kept, told
):
    file = write(two_scores(*scores))
    imported(lake, file, form="ultrafeedback", keep_tens=kept)
    assert [(row["rating"], row["status"]) for row in stored(lake, "grades")] == told


def test_tens_are_kept_of_ultrafeedback_alone(lake, write):
    with pytest.raises(InputError, match="--keep-tens is about the overall scores of UltraF"):
        imported(lake, write(two_scores(10.0, 5.0)), keep_tens=True)
    assert not lake.exists()


def test_scores_keep_their_points_and_what_can_not_be_read_has_none(lake, write):
    given = [8.5, "8.5", 1, 0.5, "good", 11, True]
    rows = (completion(f"m-{n}", value, "3", "3", "3", "3") for n, value in enumerate(given))
    imported(lake, write(published("x?", *rows)))
    overall = [row for row in stored(lake, "grades") if row["aspect"] == "overall"]
    assert [(row["rating"], row["status"]) for row in overall] == [
        (8.5, "scored"),
        (8.5, "scored"),
        (1, "scored"),
        (None, "out_of_range"),
        (None, "malformed"),
        (None, "out_of_range"),
        (None, "malformed"),
    ]


@pytest.mark.parametrize(
    ("rule", "chosen", "rejected"),
    [
        ("mean-vs-random", "m-4", {"m-1", "m-2"}),
        ("best-vs-worst", "m-4", {"m-2"}),
        ("overall", "m-4", {"m-1", "m-2"}),
    ],
)
def test_imported_grades_are_binarised_by_name(lake, write, rule, chosen, rejected):
    imported(lake, write(*ROWS))
    models = {row["candidate_id"]: row["model"] for row in stored(lake, "candidates")}
    run = open_run(lake, "uf")
    told = rederive(run, DerivationRequest(rule=rule)).derived
    (pair,) = scan_derived(run.folder, told.name, "pairs").collect().to_dicts()
    receipts = scan_derived(run.folder, told.name, "receipts").collect().to_dicts()
    run.close()
    assert (pair["rule"], models[pair["chosen_id"]]) == (rule, chosen)
    assert models[pair["rejected_id"]] in rejected
    assert {r["outcome"]: r["count"] for r in receipts if r["items"] == "prompts"} == {
        "kept": 1,
        "no_negative": 2,
    }


def test_a_rule_of_grades_refuses_what_it_does_not_read(lake, write, tmp_path):
    imported(lake, write(ROWS[0]))
    run = open_run(lake, "uf")
    with pytest.raises(DerivedError, match="makes pairs from grades alone"):
        rederive(run, DerivationRequest(rule="overall", top_k=2))
    with pytest.raises(DerivedError, match="iteration 3 of run uf has none"):
        rederive(run, DerivationRequest(rule="overall", iteration=3))
    run.close()
    plain = tmp_path / "plain.jsonl"
    plain.write_text(json.dumps({"prompt": "x?", "response": "y"}) + "\n")
    imported(lake, plain, "plain")
    asked = ["rederive", "plain", "--rule", "overall", "--lake", str(lake)]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == Exit.BAD_INPUT
    assert "no iteration whose candidates are graded" in told.stderr


def test_the_published_sample_goes_round(shared_data, lake, tmp_path):
    """Import, receipts, binarisation, export, import again: the real sample, byte for byte."""
    sample = shared_data / SAMPLE
    imported(lake, sample, form="ultrafeedback")
    form = "ultrafeedback-binarized"
    assert exported(lake, tmp_path / "all", "pairs", form) == sample.read_bytes()
    assert {r["outcome"]: r["count"] for r in stored(lake, "receipts")} == {"kept": 600}

    run = open_run(lake, "uf")
    told = rederive(run, DerivationRequest(rule="overall", name="overall")).derived
    pairs = scan_derived(run.folder, "overall", "pairs").collect()
    receipts = scan_derived(run.folder, "overall", "receipts").collect()
    run.close()
    given = [json.loads(line) for line in sample.read_text().splitlines()]
    decided = [
        row for row in given if row["metadata"]["score_chosen"] > row["metadata"]["score_rejected"]
    ]
    assert told.lineage["found"]["outcomes"] == {"paired": len(decided), "tied": 34}
    assert set(pairs["rule"]) == {"overall"}
    fates = receipts.filter(pl.col("items") == "prompts").select("outcome", "count")
    assert dict(fates.iter_rows()) == {"kept": len(decided), "tied": 34}

    out = exported(lake, tmp_path / "binarised", "pairs", form, derived="overall")
    lines = sample.read_bytes().splitlines(keepends=True)
    assert out == b"".join(line for line in lines if json.loads(line) in decided)

    imported(lake, tmp_path / "binarised" / "train.jsonl", "again", form="ultrafeedback")
    again = open_run(lake, "again")
    rederive(again, DerivationRequest(rule="overall", name="overall"))
    same = scan_derived(again.folder, "overall", "pairs").collect()
    again.close()
    assert same.equals(pairs)
