"""The judgements of a run that could not be read: their stages, and which of them can be retried.

A stage is not retried if a finished training depends on it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from ...configs.schema import ConfigError
from ...critics.status import WAS_READ
from ...policies.trainers.job import ONLINE
from ...stores.address import run_argument
from ...stores.journal_reader import Reader, StageId
from ...stores.records import Breakdown, Claim, Critique, Grade, Preference, PromptReview
from ...stores.schemas import TABLES
from ...stores.side_evals import side_eval_of
from ...stores.stage_files import scan_parts
from ..data.judged_candidates import VERIFIER
from ..data.stage_names import critique_label
from ..run.unread_replies import SECTIONS

REVIEW = "prompts:review"
"""The stage of the reviews of prompts."""
TRAINING = frozenset({"train", "train_reward"}) | ONLINE
"""The stages that train, by the first word of their labels."""


class JudgementKind(NamedTuple):
    """A kind of judgement, and its row type.

    `condition` selects rows of a model whose verdict may differ in another reply.
    """

    noun: str
    row_type: type[Any]
    condition: pl.Expr

    @property
    def unread(self) -> pl.Expr:
        """Select rows of a model whose reply could not be read."""
        return self.condition & ~pl.col("status").is_in(sorted(WAS_READ))


_ANSWERED = pl.col("attempts") > 0
# A verifier repeats its verdict.
_BY_MODEL = _ANSWERED & (pl.col("critic") != VERIFIER)
_ALL = pl.lit(value=True)
KINDS: Mapping[str, JudgementKind] = {
    "critique": JudgementKind("critiques", Critique, _BY_MODEL),
    "grade": JudgementKind("grades", Grade, _ANSWERED),
    "score_answers": JudgementKind("scores", Grade, _ANSWERED),
    "annotate": JudgementKind("comparisons", Preference, _ALL),
    "compare": JudgementKind("comparisons", Preference, _ALL),
    "break_up": JudgementKind("passages", Breakdown, _ANSWERED),
    "judge_claims": JudgementKind("statements", Claim, _ANSWERED),
    "prompts": JudgementKind("reviews", PromptReview, _ALL),
}
"""By the first word of a stage's label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscored:
    """A stage with judgements that could not be read.

    `trained` is the first iteration with a finished training that depends on it, if there is one.
    """

    kind: JudgementKind
    iteration: int
    stage: str
    rows: int
    trained: int | None


def kind_of(label: str) -> JudgementKind | None:
    """Return the kind of judgements that the loop made in a stage, or None."""
    verb = label.partition(":")[0]
    # The label of a measurement outside the loop may be followed by the judge or the aspect.
    names = (critique_label(label), label.rpartition(":")[0])
    if is_import(label) or any(map(side_eval_of, names)):
        return None
    return KINDS.get(verb) if verb != "prompts" or label == REVIEW else None


def is_import(name: str) -> bool:
    """Whether a stage contains annotations imported for a run's answers.

    Its label consists of the verb and a hash.
    """
    return name.startswith("annotate:") and name.count(":") == 1


def unscored_stages(journal: Reader) -> list[Unscored]:
    """Return the stages that judged and could not read everything, in the order of planning."""
    found = list[Unscored]()
    for state in journal.stages():
        kind, place = kind_of(state.stage), (state.iteration, state.stage)
        if kind is not None and (rows := _unread(journal, kind, place)):
            trained = min(trained_on(journal, *place), default=None)
            found.append(
                Unscored(
                    kind=kind,
                    iteration=state.iteration,
                    stage=state.stage,
                    rows=rows,
                    trained=trained,
                )
            )
    return found


def trained_on(journal: Reader, iteration: int, label: str) -> list[int]:
    """Return the iterations with a finished training that depends on a stage."""
    later = {*journal.downstream(iteration, label).places}
    return [
        state.iteration
        for state in journal.stages()
        if (state.iteration, state.stage) in later
        and state.done
        and state.stage.partition(":")[0] in TRAINING
    ]


def to_retry(journal: Reader) -> list[Unscored]:
    """Return the stages that can be retried.

    Raises:
        ConfigError: if there are unread judgements, but models were trained since.
    """
    found = unscored_stages(journal)
    open_ = [stage for stage in found if stage.trained is None]
    if found and not open_:
        numbers = ", ".join(map(str, sorted({stage.trained or 0 for stage in found})))
        sections = dict.fromkeys(SECTIONS[stage.stage.partition(":")[0]] for stage in found)
        settings = " and ".join(f"{section}.attempts" for section in sections)
        raise ConfigError(
            f"--retry-unscored: {count_unread(found)} of run {journal.folder.name} could not be "
            f"read, but iteration {numbers} has trained on the others already; `lpfloop run "
            f"--reuse-from {run_argument(journal.folder)}` with more {settings} makes another run"
        )
    return open_


def count_unread(stages: Sequence[Unscored]) -> str:
    """Return the number of unread judgements of each kind as text."""
    counts = Counter[str]()
    for stage in stages:
        counts[stage.kind.noun] += stage.rows
    nouns = dict.fromkeys(kind.noun for kind in KINDS.values())
    return " and ".join(f"{counts[noun]:,} {noun}" for noun in nouns if counts[noun])


def _unread(journal: Reader, kind: JudgementKind, place: StageId) -> int:
    iteration, label = place
    table = TABLES[kind.row_type]
    parts = [p for p in journal.parts(table=table, iteration=iteration) if p.stage == label]
    rows = scan_parts(journal, table, parts).select(kind.unread.sum())
    return int(rows.collect(engine="in-memory").item() or 0)
