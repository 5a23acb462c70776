"""UltraFeedback's published rows: imported, graded, binarised, and exported unchanged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lpfloop.loop.lake.derive.rebuild_pairs import DerivationRequest, rebuild_pairs
from lpfloop.loop.lake.exports.export import Export, export_table
from lpfloop.loop.lake.imports.import_files import Import, import_files
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.derived import scan_derived

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
    """A published completion; `mended` as after the data set's own repair."""
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


def test_published_rows_go_round(lake, write, tmp_path):
    path = write(*ROWS)
    imported(lake, path)
    assert exported(lake, tmp_path / "out", "candidates", "ultrafeedback") == path.read_bytes()
    imported(lake, tmp_path / "out" / "ultrafeedback.jsonl", "again")
    for table in ("prompts", "candidates", "grades", "critiques", "rewards", "filter_counts"):
        assert stored(lake, table, "again") == stored(lake, table)


def test_ratings_become_grades(lake, write):
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
    (prompt,) = stored(lake, "prompts")
    assert prompt["source"] == "flan"
    assert stored(lake, "candidates")[0]["principle"] == (
        "helpfulness: Think of who asks: be plain."
    )


def test_tens_that_were_ones_are_repaired(write, tmp_path, subtests):
    """The published data's bug: scores of at most 1 were multiplied by ten."""
    for number, (ratings, mended, rating, status) in enumerate(
        (
            (("2", "1", "3", "2"), False, 1, "scored"),
            (("4", "4", "4", "4"), False, None, "doubtful"),
            (("4", "4", "4", "4"), True, 10, "scored"),
        )
    ):
        lake = tmp_path / str(number)
        with subtests.test(ratings=ratings):
            imported(lake, write(published("x?", completion("m", 10, *ratings, mended=mended))))
            overall = stored(lake, "grades")[-1]
            assert (overall["aspect"], overall["rating"]) == ("overall", rating)
            assert overall["status"] == status
            fate = status if rating is None else "kept" if rating == 10 else "repaired"
            told = {row["outcome"]: row["count"] for row in stored(lake, "filter_counts")}
            assert told[fate] == 1


def test_overall_scores(lake, write):
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


def test_grades_are_binarised(lake, write, subtests):
    imported(lake, write(*ROWS))
    models = {row["candidate_id"]: row["model"] for row in stored(lake, "candidates")}
    run = open_run(lake, "uf")
    for rule, chosen, rejected in (
        ("mean-vs-random", "m-4", {"m-1", "m-2"}),
        ("best-vs-worst", "m-4", {"m-2"}),
        ("overall", "m-4", {"m-1", "m-2"}),
    ):
        with subtests.test(rule=rule):
            told = rebuild_pairs(run, DerivationRequest(rule=rule)).derived
            (pair,) = scan_derived(run.folder, told.name, "pairs").collect().to_dicts()
            counts = scan_derived(run.folder, told.name, "filter_counts").collect().to_dicts()
            assert (pair["rule"], models[pair["chosen_id"]]) == (rule, chosen)
            assert models[pair["rejected_id"]] in rejected
            assert {r["outcome"]: r["count"] for r in counts if r["items"] == "prompts"} == {
                "kept": 1,
                "no_negative": 2,
            }
    run.close()


def test_published_sample_goes_round(shared_data, lake, tmp_path):
    """Import, filter counts, binarisation, export, import again: the real sample, byte for byte."""
    sample = shared_data / SAMPLE
    imported(lake, sample, form="ultrafeedback")
    form = "ultrafeedback-binarized"
    assert exported(lake, tmp_path / "all", "pairs", form) == sample.read_bytes()
    assert {r["outcome"]: r["count"] for r in stored(lake, "filter_counts")} == {"kept": 600}

    run = open_run(lake, "uf")
    told = rebuild_pairs(run, DerivationRequest(rule="overall", name="overall")).derived
    run.close()
    given = [json.loads(line) for line in sample.read_text().splitlines()]
    decided = [
        row for row in given if row["metadata"]["score_chosen"] > row["metadata"]["score_rejected"]
    ]
    assert told.lineage["found"]["outcomes"] == {"paired": len(decided), "tied": 34}
    out = exported(lake, tmp_path / "binarised", "pairs", form, derived="overall")
    lines = sample.read_bytes().splitlines(keepends=True)
    assert out == b"".join(line for line in lines if json.loads(line) in decided)
