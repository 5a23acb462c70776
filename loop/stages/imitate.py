"""From comparisons to demonstrations: what supervised methods learn from preferences.

FeedME learns the preferred answer of each comparison. Reward conditioning learns both answers, each
behind a control text that says which one won (AlpacaFarm, Section 2.2). A tie, and a comparison
without a verdict, give nothing; with `annotation.drop_cycles` neither does one that contradicts
others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from ...configs.recipes import RewardConditioning
from ...stores.frames import as_arrow, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Demonstration, Preference, Prompt, Yield
from ...stores.schemas import RowsByType
from ..data.cycles import consistency_params, sifted
from ..data.training_rows import Made, Origin, Outcome, demonstration_rows
from ..run.conditioning import conditioned, control_text
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.needs import Needs
from ..run.run import Verb
from .prefer import sides, yields

DEMONSTRATE_PREFERRED, CONDITION = Verb("demonstrate_preferred"), Verb("condition")
PREFERRED, CONDITIONED = "preferred", "conditioned"
WON, LOST = "conditioned_positive", "conditioned_negative"
"""The rules of the rows behind either control text."""

Imitation = Callable[[pl.DataFrame, pl.DataFrame, Sequence[Prompt], int], Made]
"""Makes demonstrations of candidates and preferences, for prompts in an iteration."""


def demonstrate_preferred(
    it: Iteration, candidates: Rows[Candidate], preferences: Rows[Preference]
) -> Rows[Demonstration]:
    """Commit (x, y+) of every comparison."""
    params, how = {"rule": PREFERRED}, preferred_demonstrations
    return _derived(it, DEMONSTRATE_PREFERRED, params, how, candidates, preferences)


def condition(
    it: Iteration,
    candidates: Rows[Candidate],
    preferences: Rows[Preference],
    *,
    positive: str,
    negative: str,
) -> Rows[Demonstration]:
    """Commit both answers of every comparison, each behind the control text of its side."""

    def how(drafts: pl.DataFrame, said: pl.DataFrame, asked: Sequence[Prompt], number: int) -> Made:
        return conditioned_demonstrations(drafts, said, asked, number, positive, negative)

    params = {"rule": CONDITIONED, "positive": positive, "negative": negative}
    return _derived(it, CONDITION, params, how, candidates, preferences)


def preferred_demonstrations(
    candidates: pl.DataFrame, preferences: pl.DataFrame, prompts: Sequence[Prompt], iteration: int
) -> Made:
    """Return each preferred answer once, in the order of the prompts, and one yield a prompt."""
    asked, by = rows_frame(Prompt, prompts), Origin(rule=PREFERRED, iteration=iteration)
    chosen = _once(sides(candidates, preferences, asked).chosen)
    rows = demonstration_rows(chosen, asked, by)
    return Made(rows, yields(preferences, asked, rows, by, Outcome.DEMONSTRATED))


def conditioned_demonstrations(
    candidates: pl.DataFrame,
    preferences: pl.DataFrame,
    prompts: Sequence[Prompt],
    iteration: int,
    positive: str,
    negative: str,
) -> Made:
    """Return first all preferred, then all other answers, and one yield a prompt."""
    asked = rows_frame(Prompt, prompts)
    chosen, rejected = sides(candidates, preferences, asked)
    rows = pl.concat(
        demonstration_rows(
            _once(side), _controlled(prompts, text), Origin(rule=rule, iteration=iteration)
        )
        for side, text, rule in ((chosen, positive, WON), (rejected, negative, LOST))
    )
    by = Origin(rule=CONDITIONED, iteration=iteration)
    return Made(rows, yields(preferences, asked, rows, by, Outcome.DEMONSTRATED))


def _once(side: pl.DataFrame) -> pl.DataFrame:
    return side.unique("candidate_id", keep="first", maintain_order=True)


def _controlled(prompts: Sequence[Prompt], text: str) -> pl.DataFrame:
    control = control_text(text)
    behind = [replace(p, messages=conditioned(p.messages, control)) for p in prompts]
    return rows_frame(Prompt, behind)


def _derived(
    it: Iteration,
    verb: Verb,
    params: Mapping[str, Json],
    how: Imitation,
    candidates: Rows[Candidate],
    preferences: Rows[Preference],
) -> Rows[Demonstration]:
    config = it.run.config.annotation

    def make(unit: Unit) -> RowsByType:
        drafts = it.frame(candidates, unit.chunk)
        asked = [it.run.prompts[name] for name in dict.fromkeys(drafts["prompt_id"])]
        said = sifted(it.frame(preferences, unit.chunk), config, it.number)
        made = how(drafts, said.comparisons, asked, it.number)
        return {
            Demonstration: as_arrow(made.rows),
            Yield: as_arrow(made.yields),
            **said.tables,
        }

    work = it.work(verb, {**params, **consistency_params(config)}, candidates, preferences)
    return it.rows(Demonstration, verb.name, work, make)


NEEDS: Needs = {condition: (RewardConditioning,)}
