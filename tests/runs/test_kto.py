"""KTO from single successes and failures: its rows, the skipped ones, and its training."""

from pathlib import Path

import polars as pl
from world import RUN, loop, quick_folder, stand_ins, write_prompts
from world import SMALL as CRASHING

from lpfloop.configs.load import load_config
from lpfloop.loop.data.filter_counts import accounts
from lpfloop.loop.data.pairs import CONTRADICTED, EITHER, REPEATED, Outcome, Pairing, unpair
from lpfloop.loop.lake.query.runs import open_run

SMALL = tuple(s for s in CRASHING if not s.startswith(("recipe.m=", "recipe.top_k=")))
HOW = Pairing(rule=EITHER, top_k=1, root_seed=0, iteration=1)
PROMPTS = pl.DataFrame(
    {"prompt_id": ["a", "b"], "messages": [[{"role": "user", "content": "?"}]] * 2}
)


def answer(name: str, prompt: str, text: str, *, success: bool | None) -> dict[str, object]:
    return {
        "prompt_id": prompt,
        "candidate_id": f"cand-{name}",
        "text": text,
        "usable": True,
        "reward": None,
        "ratings": [] if success is None else [1 if success else 0],
        "success": success is True,
        "failure": success is False,
    }


SCHEMA = {"reward": pl.Float64, "ratings": pl.List(pl.Int8)}


def test_text_is_success_or_failure_once():
    judged = pl.DataFrame(
        [
            answer("1", "a", "good", success=True),
            answer("2", "a", " good", success=True),
            answer("3", "a", "bad", success=False),
            answer("4", "a", "unread", success=None),
            answer("5", "a", "disputed", success=True),
            answer("6", "a", "disputed", success=False),
            answer("7", "b", "good", success=False),
        ],
        schema_overrides=SCHEMA,
    )
    made = unpair(judged, PROMPTS, HOW)
    labels = dict(made.rows.select("candidate_id", "label").iter_rows())
    assert labels == {"cand-1": True, "cand-3": False, "cand-7": False}
    assert {*made.outcomes["outcome"]} == {Outcome.UNPAIRED}
    (account,) = accounts(made.filter_counts)
    assert {o["outcome"]: o["count"] for o in account["outcomes"]} == {
        "kept": 3, REPEATED: 1, CONTRADICTED: 2
    }  # fmt: skip
    assert unpair(judged.reverse(), PROMPTS, HOW).rows.equals(made.rows)


def test_rows_of_the_recipe(tmp_path: Path):
    source = f"prompts.source={write_prompts(tmp_path)}"
    with quick_folder(tmp_path) as lake, stand_ins(lake):
        loop(lake, config=load_config("tiny", "kto", (*SMALL, "recipe.n=4", source), {}))
        run = open_run(lake, RUN)
        rows = run.scan("unpaired_answers", iteration=1).collect()
        said = run.scan("critiques", iteration=1).collect()
        passed = {
            row["candidate_id"]: all(a["rating"] == 1 for a in row["aspects"])
            for row in said.to_dicts()
            if row["status"] == "scored"
        }
        assert rows.height > 2
        for row in rows.to_dicts():
            assert row["label"] == passed[row["candidate_id"]]
            assert row["completion"][0]["role"] == "assistant"
        assert run.scan("rewards").collect().is_empty()
        assert run.scan("pairs").collect().is_empty()
        stages = {s.stage for s in run.journal.stages() if s.iteration == 1}
        assert {"sample", "critique:sample", "unpair", "train"} <= stages
        checkpoint = run.scan("checkpoints", iteration=1).collect().to_dicts()[0]
        assert checkpoint["recipe"] == "kto"
        run.close()
