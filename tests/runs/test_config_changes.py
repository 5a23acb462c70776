"""Changed settings of an existing run: refused by name, or continued without the change."""

from contextlib import closing

import pytest
from world import RUN, loop, quick_folder, small_config, stand_ins, whole, write_prompts

from lpfloop.configs.schema import ConfigError
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

SEMANTIC = (
    "seed=1",
    "recipe.n=3",
    "policy.sampling.temperature=0.5",
    "training.dpo.beta=0.3",
    "injection_guard=true",
)
OTHERS = (
    "critic.engine.concurrency=3",
    "shutdown_timeout_s=7",
    "overlap=false",
    "budget.judge_calls=100000",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of one iteration: its lake and its prompts."""
    with quick_folder(tmp_path_factory.getbasetemp()) as folder, stand_ins(folder):
        prompts = write_prompts(folder)
        loop(folder, config=small_config(prompts, "iterations=1"))
        yield folder, prompts


def kept(lake):
    """Return the journal's stages and parts, and the size of each part's file."""
    folder = run_folder(lake, RUN)
    with closing(Reader(folder)) as reader:
        held = [(s.iteration, s.stage, s.planned, s.done) for s in reader.stages()], reader.parts()
    return held, {path: path.stat().st_size for path in folder.rglob("*.parquet")}


def test_semantic_changes_are_refused(made, subtests):
    lake, prompts = made
    before = kept(lake)
    (lake / "more").mkdir()
    source = f"prompts.source={write_prompts(lake / 'more', count=9)}"
    for change in (*SEMANTIC, source):
        with subtests.test(change=change):
            name = change.partition("=")[0]
            with pytest.raises(ConfigError, match=f"(?s)config.{name}.*--reuse-from a"):
                loop(lake, config=small_config(prompts, "iterations=1", change))
            assert kept(lake) == before


def test_cosmetic_changes_allowed(made, subtests):
    lake, prompts = made
    before, rows = kept(lake), whole(lake)
    for change in OTHERS:
        with subtests.test(change=change):
            loop(lake, config=small_config(prompts, "iterations=1", change))
            assert kept(lake) == before
    assert whole(lake) == rows


def test_more_iterations_are_added(tmp_path):
    with quick_folder(tmp_path) as lake, stand_ins(lake):
        prompts = write_prompts(lake)
        loop(lake, config=small_config(prompts, "iterations=2"), name="straight")
        for number in (1, 2):
            loop(lake, config=small_config(prompts, f"iterations={number}"))
        assert whole(lake).digest == whole(lake, "straight").digest
