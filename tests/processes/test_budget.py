"""A run never exceeds its budget, even if killed; with a larger budget it continues."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from world import (
    KILLED,
    RUN,
    Attempt,
    Whole,
    loop,
    quick_folder,
    small_config,
    spent,
    stand_ins,
    whole,
    write_prompts,
)

from lpfloop.configs.schema import BudgetConfig, ModelPrice, PriceConfig, RunConfig
from lpfloop.loop.run.budget import BudgetReachedError
from lpfloop.stores.journal_reader import Cost, Reader
from lpfloop.stores.lake import run_folder

SEED = 20_261_122
JUDGE = "critic.engine.model_name=judge"
PLACES = ("stage.unit", "journal.reserve.after", "journal.commit.before", "part.rename.after")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    return small_config(write_prompts(tmp_path_factory.mktemp("prompts")), JUDGE)


@pytest.fixture(scope="module")
def straight(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Whole, Cost]:
    with quick_folder(tmp_path_factory.getbasetemp()) as lake, stand_ins(lake):
        loop(lake, config=config)
        return whole(lake), spent(lake)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


def limited(config: RunConfig, **limits: float) -> RunConfig:
    return config.model_copy(update={"budget": BudgetConfig.model_validate(limits)})


def priced(config: RunConfig, **prices: ModelPrice) -> RunConfig:
    return config.model_copy(update={"prices": PriceConfig(models=prices)})


def recorded(lake: Path) -> Cost:
    reader = Reader(run_folder(lake, RUN))
    cost = reader.total_cost()
    reader.close()
    return cost


@pytest.mark.parametrize("number", range(4))
def test_no_limit_exceeded_over_crashes(config, straight, lake, number):
    expected, cost = straight
    generator = random.Random(f"{SEED}-{number}")
    limit = Cost(
        tokens=generator.randint(0, 4 * cost.tokens) + 10_000 * (number % 2),
        judge_calls=generator.randint(0, 2 * cost.judge_calls),
    )
    told = f"seed {SEED}, chain {number}, {limit}"
    small = limited(config, tokens=limit.tokens, judge_calls=limit.judge_calls)
    for _ in range(generator.randint(1, 4)):
        points = {f"{generator.choice(PLACES)}#{generator.randint(1, 8)}": "kill"}
        Attempt(lake=lake, work=partial(loop, config=small), points=points).start()
        seen = spent(lake)
        assert seen.tokens <= limit.tokens, told
        assert seen.judge_calls <= limit.judge_calls, told
    ended = Attempt(lake=lake, work=partial(loop, config=small)).start()
    seen = spent(lake)
    assert seen.tokens <= limit.tokens, told
    assert seen.judge_calls <= limit.judge_calls, told
    if ended != 0:
        assert (lake / "error").read_text().startswith("BudgetReachedError"), told
    booked = recorded(lake) if run_folder(lake, RUN).exists() else Cost()
    assert booked.tokens >= seen.tokens, told
    assert booked.judge_calls >= seen.judge_calls, told
    loop(lake, config=config)
    assert whole(lake) == expected, told


@pytest.mark.parametrize(
    ("limits", "option"),
    [
        ({"tokens": 900}, "--set budget.tokens="),
        ({"money": 0.5}, "--set budget.money="),
        ({"hours": 0.0}, "--set budget.hours="),
        ({"disk_gib": 1e-5}, "--set budget.disk_gib="),
    ],
)
def test_limit_names_its_option(config, straight, lake, limits, option):
    costly = priced(config, judge=ModelPrice(prompt=1000.0, completion=1000.0))
    with pytest.raises(BudgetReachedError, match=option):
        loop(lake, config=limited(costly, **limits))
    first = spent(lake)
    with pytest.raises(BudgetReachedError, match=option):
        loop(lake, config=limited(costly, **limits))
    assert spent(lake).judge_calls <= max(first.judge_calls, limits.get("judge_calls", 10**6))
    loop(lake, config=costly)
    assert whole(lake) == straight[0]


MUCH = (
    JUDGE,
    "prompts.per_iteration=96",
    "prompts.chunk=16",
    "recipe.n=4",
    "iterations=1",
    "critic.sampling.max_tokens=512",
    "critic.attempts=3",
)
"""A run whose questions are allowed many times their usual cost."""


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Whole, float]:
    """A run, its results, and its cost at a thousandth a token."""
    each = ModelPrice(prompt=1000.0, completion=1000.0)
    prompts = write_prompts(tmp_path_factory.mktemp("much"), 128)
    config = priced(small_config(prompts, *MUCH), judge=each, tiny=each)
    with quick_folder(tmp_path_factory.getbasetemp()) as lake, stand_ins(lake):
        loop(lake, config=config)
        return config, whole(lake), money(lake)


def money(lake: Path) -> float:
    """Return the money that the fake models counted."""
    return spent(lake).tokens / 1000


def test_small_budget_nearly_used_up(much, lake):
    config, expected, cost = much
    share = 0.6
    small = limited(config, money=share * cost)
    for _ in range(2):
        with pytest.raises(BudgetReachedError, match=r"budget\.money"):
            loop(lake, config=small)
        assert 0.9 * share * cost <= money(lake) <= share * cost
    loop(lake, config=config)
    assert whole(lake) == expected
    assert money(lake) == pytest.approx(cost), "something was paid for twice"


def test_time_before_a_crash_counts(config, lake):
    work = partial(loop, config=config)
    assert Attempt(lake=lake, work=work, points={"stage.begin#9": "kill"}).start() == KILLED
    reader = Reader(run_folder(lake, RUN))
    hours = sum(stage.seconds for stage in reader.stages()) / 3600
    reader.close()
    assert hours > 0
    with pytest.raises(BudgetReachedError, match=r"budget\.hours"):
        loop(lake, config=limited(config, hours=hours))
