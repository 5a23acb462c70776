"""A budget is never exceeded, whatever is killed when; more of it goes on where it ended."""

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from crashing import (
    KILLED,
    RUN,
    Attempt,
    Silent,
    Whole,
    calls,
    loop,
    quick_folder,
    small_config,
    spent,
    stand_ins,
    whole,
    write_prompts,
)
from waiting import wait_until

from lpfloop.configs.schema import BudgetConfig, ModelPrice, PriceConfig, RunConfig
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.run.budget import BudgetReachedError
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.failpoints import armed
from lpfloop.stores.journal_reader import Cost, Reader
from lpfloop.stores.lake import run_folder

pytestmark = pytest.mark.crash

SEED = 20_261_122
CHAINS = 16
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
    cost = reader.spent()
    reader.close()
    return cost


def test_what_is_recorded_is_what_was_spent(config, lake):
    loop(lake, config=priced(config, judge=ModelPrice(prompt=0, completion=1e6)))
    cost = recorded(lake)
    assert replace(cost, money=0.0) == spent(lake)
    assert cost.money > 0


@pytest.mark.parametrize("number", range(CHAINS))
def test_no_limit_is_exceeded_over_crashes_and_a_higher_one_goes_on(config, straight, lake, number):
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


@pytest.mark.parametrize("script", ["critic", "mumbling_critic"])
@pytest.mark.parametrize("limit", range(4, 60, 8))
def test_a_limit_met_while_replies_are_to_be_asked_for_again_ends_the_run(lake, limit, script):
    override = f"critic.engine.script=crashing:{script}"
    config = small_config(write_prompts(lake), override, f"budget.judge_calls={limit}")
    code = Attempt(lake=lake, work=partial(loop, config=config)).start()
    assert code != KILLED, "it hung"
    assert spent(lake).judge_calls <= limit


@pytest.mark.parametrize(
    ("limits", "option"),
    [
        ({"tokens": 900}, "--max-tokens"),
        ({"judge_calls": 9}, "--max-judge-calls"),
        ({"money": 0.5}, "--max-money"),
        ({"hours": 0.0}, "--max-hours"),
        ({"disk_gib": 1e-5}, "--max-disk-gib"),
    ],
)
def test_a_limit_ends_the_run_with_the_option_that_lifts_it(config, straight, lake, limits, option):
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
"""A run whose questions may cost many times what they do."""


@pytest.fixture(scope="module")
def much(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Whole, float]:
    """A run, what it makes, and what it costs: each token a thousandth."""
    each = ModelPrice(prompt=1000.0, completion=1000.0)
    prompts = write_prompts(tmp_path_factory.mktemp("much"), 128)
    config = priced(small_config(prompts, *MUCH), judge=each, tiny=each)
    with quick_folder(tmp_path_factory.getbasetemp()) as lake, stand_ins(lake):
        loop(lake, config=config)
        return config, whole(lake), money(lake)


def money(lake: Path) -> float:
    """Return what the models themselves count."""
    return spent(lake).tokens / 1000


@pytest.mark.parametrize("room", [1.1, 1.3])
def test_a_run_that_fits_its_budget_is_finished_whatever_it_might_have_cost(much, lake, room):
    config, expected, cost = much
    loop(lake, config=limited(config, money=room * cost))
    assert whole(lake) == expected


@pytest.mark.parametrize("share", [0.4, 0.6, 0.8])
def test_a_budget_that_is_too_small_is_used_nearly_up_and_never_exceeded(much, lake, share):
    config, expected, cost = much
    small = limited(config, money=share * cost)
    for _ in range(2):
        with pytest.raises(BudgetReachedError, match=r"budget\.money"):
            loop(lake, config=small)
        assert 0.9 * share * cost <= money(lake) <= share * cost
    loop(lake, config=config)
    assert whole(lake) == expected
    assert money(lake) == pytest.approx(cost), "something was paid for twice"


def test_time_that_was_spent_before_a_crash_counts(config, lake):
    work = partial(loop, config=config)
    assert Attempt(lake=lake, work=work, points={"stage.begin#9": "kill"}).start() == KILLED
    reader = Reader(run_folder(lake, RUN))
    hours = sum(stage.seconds for stage in reader.stages()) / 3600
    reader.close()
    assert hours > 0
    with pytest.raises(BudgetReachedError, match=r"budget\.hours"):
        loop(lake, config=limited(config, hours=hours))


def test_a_pause_lets_nothing_begin_and_what_is_in_flight_is_committed(config, straight, lake):
    stop = StopSignal()
    friend = threading.Thread(target=paused_for_a_while, args=(lake, stop))
    with armed({"stage.unit#6": lambda _: stop.pause(), "stage.unit#7": lambda _: paused_at(stop)}):
        friend.start()
        run_loop(Job(config=config, lake=lake, name=RUN), Silent(), stop)
    friend.join()
    assert whole(lake) == straight[0]


def paused_at(stop: StopSignal) -> None:
    assert not stop.paused, "a unit ended that began in the pause"


def paused_for_a_while(lake: Path, stop: StopSignal) -> None:
    """Wait until everything in flight is committed, see that nothing more comes, and go on."""
    wait_until(lambda: stop.paused)
    wait_until(lambda: done(lake) == 6)
    asked = sum(calls(lake).values())
    wait_until(partial(next, iter([False] * 5 + [True])))
    assert (done(lake), sum(calls(lake).values())) == (6, asked)
    stop.unpause()


def done(lake: Path) -> int:
    reader = Reader(run_folder(lake, RUN))
    units = sum(stage.done for stage in reader.stages())
    reader.close()
    return units
