"""People's ratings, imported while a run is stopped, decide its pairs when it resumes."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner
from world import (
    KILLED,
    RUN,
    Attempt,
    handle_rows,
    quick_folder,
    small_config,
    stand_ins,
    turn,
    whole,
    write_prompts,
)

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.run.handles import JudgedRows
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.pair import pair
from lpfloop.loop.stages.reward import reward
from lpfloop.loop.stages.sample import sample
from lpfloop.stores.journal import Done, Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import Critique, Pair


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


def config(lake: Path, *overrides: str) -> RunConfig:
    limits = ("recipe.n=8", "prompts.per_iteration=8", "prompts.chunk=2", "recipe.top_k=2")
    return small_config(write_prompts(lake, 16), *limits, *overrides)


def paired(lake: Path, *overrides: str) -> tuple[list[Critique], list[Pair], list[str]]:
    """Open a run and pair its judged samples: return critiques, pairs and reports."""
    told = list[str]()
    with turn(Job(config=config(lake, *overrides), lake=lake, name=RUN)) as it:
        it.run.reporter.note = lambda text, *_, **__: told.append(text)
        drafts = sample(it, it.prompts(), n=8)
        said = critique(it, drafts)
        judged = JudgedRows(candidates=drafts, critiques=said, rewards=reward(it, drafts))
        made = pair(it, judged, rule="success_vs_failure", top_k=2)
        return handle_rows(it, said), handle_rows(it, made), told


def annotate(lake: Path, ratings: dict[str, int]) -> None:
    path = lake / "said.jsonl"
    said = [
        {"candidate_id": one, "annotator": "ada", "ratings": {"Comprehension": rating}}
        for one, rating in ratings.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in said))
    words = ("import", str(path), "--run", RUN, "--as", "annotations", "--lake", str(lake))
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output


def test_pairs_follow_what_people_said(lake: Path) -> None:
    said, before, _ = paired(lake)
    wrong = {row.chosen_id: -1 for row in before}
    annotate(lake, wrong)
    for _ in range(2):
        again, after, told = paired(lake)
        assert again == said, "no critic is asked again"
        assert after
        assert not {row.chosen_id for row in after} & {*wrong}
        assert told == []
    # People's later ratings count, too.
    annotate(lake, dict.fromkeys(wrong, 1))
    assert {row.chosen_id for row in paired(lake)[1]} & {*wrong}
    assert whole(lake).pending == []
    assert whole(lake).repeated == []
    with closing(Reader(run_folder(lake, RUN))) as reader:
        names = [s.stage.partition(":")[0] for s in reader.stages() if s.iteration == 1]
    assert names[-2:] == ["annotate", "pair"], "they are planned after what was forgotten"


def test_trained_pairs_stay(lake: Path) -> None:
    _, before, _ = paired(lake)
    journal = Journal(run_folder(lake, RUN))
    pairs = journal.keys(1, "pair")
    journal.plan(1, "train", "of these pairs", lambda: ["trained"], upstream=pairs)
    journal.commit([Done(unit="trained", parts={}, telemetry={})])
    journal.close()
    annotate(lake, {row.chosen_id: -1 for row in before})
    _, after, told = paired(lake)
    assert after == before
    assert len(told) == 1
    assert "after iteration 1 was trained" in told[0]


def again(lake: Path) -> None:
    paired(lake)


@pytest.mark.crash
def test_killed_while_pairs_are_forgotten(lake: Path) -> None:
    _, before, _ = paired(lake)
    wrong = {row.chosen_id: -1 for row in before}
    annotate(lake, wrong)
    points = {"journal.forget.after": "kill"}
    assert Attempt(lake=lake, work=again, points=points).start() == KILLED
    assert not {row.chosen_id for row in paired(lake)[1]} & {*wrong}
    assert whole(lake).pending == []
