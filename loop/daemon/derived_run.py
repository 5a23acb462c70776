"""A child run that trains from given rows: a derived table of its parent.

It begins where the parent's iteration began: with the policy M_{t-1} and the same held-out prompts.
It takes the rows as they are, trains M_t on them and evaluates it; from then on it follows its
recipe, as any run.
"""

import json
from dataclasses import dataclass
from functools import cache, partial

import polars as pl

from ...configs.schema import RunConfig
from ...stores.address import run_argument
from ...stores.derived import DerivedError, open_derived
from ...stores.frames import as_arrow, frame_rows
from ...stores.journal_reader import JournalError, Reader, Unit
from ...stores.keys import Json
from ...stores.lake import RunReader
from ...stores.records import Checkpoint, Demonstration, Pair, UnpairedAnswer
from ...stores.schemas import RowsByType
from ..data.pairs import TRAINABLE
from ..run.fork import Fork
from ..run.handles import D, Rows
from ..run.iteration import Iteration
from ..run.run import Run, Verb, Work
from ..run.stop import NothingToTrainOn
from ..stages.train import keep_policy, train, train_reward

GIVEN = "given"
"""The journal's key of the rows given to a run, and the stage that takes them over."""
BEGIN = "begin"
TAKE_OVER = Verb("given")
ROWS_A_UNIT = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Rows of a derived table for one iteration, and the policy M_{t-1} that is trained on them.

    `identity` is the hash of the whole table: every unit that is made of it depends on it. With
    `reward`, the rows train a reward model, and the policy stays as it is.
    """

    name: str
    identity: str
    table: str
    rows: int
    iteration: int
    policy: str
    reward: bool = False

    @property
    def params(self) -> Json:
        """The part of this that can change a result."""
        return {"table": self.table, "identity": self.identity, "policy": self.policy}


def stored_given(journal: Reader) -> Given | None:
    """Return the rows given to a run, if any."""
    stored = journal.meta(GIVEN)
    return None if stored is None else Given(**json.loads(stored))


def given_by(
    run: RunReader, name: str, iteration: int | None, config: RunConfig, *, reward: bool = False
) -> Given:
    """Return a derived table of a run as the rows given to a child, its bytes verified.

    Raises:
        DerivedError: if it is not there, or nothing can be trained from it.
        NothingToTrainOn: if it has fewer rows than `training.min_pairs`.
        DamagedError: if it was altered.
    """
    derived = open_derived(run.folder, name)
    derived.check()
    table = str(derived.lineage["table"])
    if table not in TRAINABLE:
        raise DerivedError(
            f"derived table {name} holds {table}; `lpfloop rebuild-pairs "
            f"{run_argument(run.folder)} --rule RULE "
            f"--derived {name}` makes pairs of them"
        )
    if reward and TRAINABLE[table] is not Pair:
        raise DerivedError(
            f"derived table {name} holds {table}, and a reward model learns from pairs: name "
            "another table, or leave --reward out"
        )
    numbers: list[int] = derived.lineage["iterations"]
    number = numbers[-1] if iteration is None else iteration
    if number not in numbers or number < 1:
        known = ", ".join(str(number) for number in numbers if number)
        raise DerivedError(
            f"derived table {name} contains no rows to train iteration {number} on; its "
            f"iterations: {known or 'none'}"
        )
    rows = derived.scan(table).filter(pl.col("iteration") == number).select(pl.len())
    given = Given(
        name=name,
        identity=derived.identity,
        table=table,
        rows=rows.collect().item(),
        iteration=number,
        policy=_policy(run, number - 1),
        reward=reward,
    )
    if given.rows < config.training.min_pairs:
        raise NothingToTrainOn(
            f"derived table {name} has {given.rows} {table} of iteration {number}, fewer than "
            f"training.min_pairs={config.training.min_pairs}"
        )
    return given


def _policy(run: RunReader, iteration: int) -> str:
    """Return the checkpoint with which the next iteration began."""
    chosen = run.scan("standings", iteration=iteration).select("next_id").collect()
    every = run.scan("checkpoints", iteration=iteration).filter(pl.col("at_step").is_null())
    made = every.select("checkpoint_id").collect()
    if made.is_empty():
        raise DerivedError(f"run {run.folder.name} contains no policy of iteration {iteration}")
    return str((made if chosen.is_empty() else chosen).item(-1, 0))


def begin(run: Run, given: Given) -> Checkpoint:
    """Take over M_{t-1} from the parent: its row, its weights, its canary."""
    work = Work(verb=TAKE_OVER, params=given.params, upstream=(), reads=lambda: [()])

    def make(_: Unit) -> RowsByType:
        return {Checkpoint: run.store.when_there_is_room(partial(_reuse_checkpoints, run, given))}

    planned = run.make(given.iteration - 1, BEGIN, work, make)
    (checkpoint,) = run.store.rows(Checkpoint, planned.key(run.store.journal, 0))
    return checkpoint


def _reuse_checkpoints(run: Run, given: Given) -> list[Checkpoint]:
    parent = _parent(run)
    rows = parent.parent.scan("checkpoints").filter(pl.col("at_step").is_null())
    same = rows.sort("iteration").collect().filter(pl.col("checkpoint_id") == given.policy).tail(1)
    # After a policy that was not built upon, it is one of an earlier iteration.
    row = same.with_columns(iteration=pl.lit(given.iteration - 1, pl.Int64))
    parent.reuse_models(run.store, row)
    return frame_rows(Checkpoint, row)


def train_given(it: Iteration, given: Given) -> Checkpoint:
    """M_t: the policy trained on the given rows; with a reward model made of them, M_{t-1}."""
    if given.reward:
        train_reward(it, _take_rows(it.run, Pair, given))
        return keep_policy(it)
    if TRAINABLE[given.table] is Pair:
        return train(it, _take_rows(it.run, Pair, given))
    if TRAINABLE[given.table] is UnpairedAnswer:
        return train(it, _take_rows(it.run, UnpairedAnswer, given))
    return train(it, _take_rows(it.run, Demonstration, given))


def _take_rows(run: Run, row_type: type[D], given: Given) -> Rows[D]:
    """Commit the given rows, some a unit, as rows of this run."""
    starts = range(0, given.rows, ROWS_A_UNIT)
    work = Work(
        verb=TAKE_OVER,
        params=given.params,
        upstream=(given.identity,),
        reads=lambda: [(given.identity, str(start)) for start in starts],
    )
    source = cache(partial(_source, run, given))

    def make(unit: Unit) -> RowsByType:
        rows = source().slice(starts[unit.chunk], ROWS_A_UNIT).collect(engine="in-memory")
        return {row_type: as_arrow(rows)}

    planned = run.make(given.iteration, GIVEN, work, make)
    return Rows(row_type=row_type, stages=(planned,))


def _source(run: Run, given: Given) -> pl.LazyFrame:
    """Return the rows of the derived table, which must be the given ones.

    Raises:
        DerivedError: if the table was removed or replaced.
        DamagedError: if its rows were altered.
    """
    derived = open_derived(_parent(run).parent.folder, given.name)
    derived.check()
    if derived.identity != given.identity:
        raise DerivedError(
            f"derived table {given.name} was made again and holds other rows by now: begin "
            "another run with `lpfloop train`"
        )
    return derived.scan(given.table).filter(pl.col("iteration") == given.iteration)


def _parent(run: Run) -> Fork:
    if run.fork is None:
        raise JournalError(
            f"run {run.name} was not yet given all its rows, and its parent is not in the lake"
        )
    return run.fork
