"""The check of judges: every measure of every annotator, on all pairs and by task type.

AlpacaFarm, Section 4.3, and UltraFeedback, Section 4: agreement with people's majority, with single
people and with a second judge, bias and variance, preferences, consistency, and a model's wins. All
intervals are over instructions.

A reward model is a judge, too: it prefers the answer with the higher score.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from ...configs.mistakes import list_names
from ...configs.schema import RewardConfig
from ...policies.engines.engine import ScoreBatch, ScoreRequest
from ...policies.workers.engine_factory import open_scorer
from ...stores.records import Message, Preferred
from ..data.files import InputError
from ..lake.statistics.clustered_estimates import (
    Estimate,
    Numbers,
    OfSums,
    estimate,
    ratio,
)
from . import judge_statistics as statistics
from .judge_statistics import FIRST, SECOND, TIE, Counts
from .judgments import ORDERS, JudgedOutput, Judgment, Judgments, Votes, together

NAME = "reward model"
Conversation = tuple[Message, ...]


def reward_judgments(
    given: Sequence[Judgment], config: RewardConfig, folder: Path
) -> Iterator[Judgment]:
    """Yield the judgment of the reward model in `folder` on each pair that others judged.

    Equal scores are a tie. A pair is unread if an answer is too long to be scored.

    Raises:
        EngineError: if it is not a reward model, or cannot be run.
    """
    pairs = {
        (j.messages, *sorted((j.first.key, j.second.key))): j
        for j in given
        if j.first.key != j.second.key and None not in (j.first.text, j.second.text)
    }
    sides = [(_conversation(j, j.first), _conversation(j, j.second)) for j in pairs.values()]
    scores = _scores(config, folder, list(dict.fromkeys(one for both in sides for one in both)))
    for judgment, (first, second) in zip(pairs.values(), sides, strict=True):
        preferred = _preferred(scores[first], scores[second])
        yield replace(
            judgment, annotator=NAME, human=False, preferred=preferred, shown=None, price=None
        )


def _preferred(first: float | None, second: float | None) -> Preferred | None:
    if first is None or second is None:
        return None
    return "tie" if first == second else "first" if first > second else "second"


def _conversation(judgment: Judgment, answer: JudgedOutput) -> Conversation:
    return (*judgment.messages, Message(role="assistant", content=answer.text or ""))


def _scores(
    config: RewardConfig, folder: Path, conversations: Sequence[Conversation]
) -> dict[Conversation, float | None]:
    with TemporaryDirectory() as work:
        scorer = open_scorer(folder, config, log=Path(work) / "reward.log")
        try:
            found = {
                result.key: result.answers
                for result in scorer.score(_batches(conversations, config.batch_size))
            }
        finally:
            scorer.close()
    flat = [score for number in range(len(found)) for score in found[str(number)]]
    return dict(zip(conversations, flat, strict=True))


def _batches(conversations: Sequence[Conversation], size: int) -> Iterator[ScoreBatch]:
    for number, start in enumerate(range(0, len(conversations), size)):
        requests = [
            ScoreRequest(request_id=str(place), messages=messages)
            for place, messages in enumerate(conversations[start : start + size], start)
        ]
        yield ScoreBatch(key=str(number), requests=tuple(requests))


PEOPLE, JUDGE, POOL = "people", "judge", "pool"
ALL = "all"
MEASURES: Mapping[str, str] = {
    # With people: their majority, without ties, the majority of the others in place of each person,
    # and one other person.
    "agreement": "agree",
    "decided": "no ties",
    "held_out": "held out",
    "person": "a person",
    # Beyond chance: with people's majority, and among its own verdicts on a pair.
    "cohen": "kappa",
    "fleiss": "Fleiss",
    "second": "second",
    "second_cohen": "second kappa",
    # A model's results, on pairs that people judged if there are any.
    "win": "wins",
    "tie": "ties",
    "lose": "loses",
    # Error between the majorities of its verdicts and of people's, and of a held-out verdict
    # against the majority of its others on the same pair.
    "bias": "bias",
    "variance": "variance",
    # Preference for the longer output, for a list, and for the output that was shown first.
    "longer": "longer",
    "lists": "lists",
    "first_shown": "shown first",
    # The same verdict in both orders, and twice on the same question.
    "both_orders": "both orders",
    "repeats": "repeats",
}
"""The measures of an annotator, with their headings."""
PANEL = 4
"""The most verdicts of a majority; one less if a verdict is held out."""
KAPPAS = frozenset({"cohen", "fleiss", "second_cohen"})
AS_GIVEN, SWAPPED = ORDERS["as_given"], ORDERS["swapped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """An annotator's measures on one task type, or on all pairs.

    `measures` are those of `MEASURES` that have data: shares from 0 to 1, or kappas. `lost` are the
    unread replies on pairs that people judged. `price` is the mean cost of a verdict, in the
    currency of its source, if known.
    """

    task: str
    name: str
    kind: str
    verdicts: int
    unread: int
    lost: int
    price: float | None
    measures: Mapping[str, Estimate]

    @property
    def unread_share(self) -> float:
        """The share of its replies that could not be read."""
        return self.unread / (self.unread + self.verdicts) if self.unread else 0.0

    @property
    def if_read(self) -> tuple[float, float] | None:
        """The agreement if all lost replies were wrong, and if all were right; None without any."""
        agreement = self.measures.get("agreement")
        if not self.lost or agreement is None:
            return None
        right, whole = agreement.value * agreement.n, agreement.n + self.lost
        return right / whole, (right + self.lost) / whole


def check(
    judgments: Judgments, *, second: str | None = None, model: str | None = None
) -> list[Checked]:
    """Measure people, each judge, and, of several judges, their pool; on all pairs, then by task.

    `second` is another judge to compare with, `model` one whose wins are counted.

    Raises:
        InputError: if the second judge or the model is unknown.
    """
    other, sign = _second(judgments, second), _sign(judgments, model)
    measured = [
        (votes, kind, _measures(votes, kind, judgments, other, sign))
        for votes, kind in _annotators(judgments)
    ]
    by_people = judgments.people.counts.any(axis=(1, 2))
    return [
        Checked(
            task=task,
            name=votes.name,
            kind=kind,
            verdicts=int(votes.counts[members].sum()),
            unread=int(votes.missing[members].sum()),
            lost=int(votes.missing[members & by_people].sum()),
            price=votes.price,
            measures={
                name: found
                for name, of in measures.items()
                if (found := estimate(of.within(members), judgments.instructions)) is not None
            },
        )
        for task, members in _tasks(judgments).items()
        for votes, kind, measures in measured
    ]


def _tasks(judgments: Judgments) -> Mapping[str, NDArray[np.bool_]]:
    """Return a mask of the pairs of each task type, after one of all pairs."""
    names = sorted({task for task in judgments.tasks if task is not None})
    every = {ALL: np.ones(len(judgments.tasks), dtype=np.bool_)}
    return every | {
        name: np.array([task == name for task in judgments.tasks], dtype=np.bool_) for name in names
    }


def _annotators(judgments: Judgments) -> Iterator[tuple[Votes, str]]:
    if judgments.people.counts.any():
        yield judgments.people, PEOPLE
    for votes in judgments.judges:
        yield votes, JUDGE
    if len(judgments.judges) > 1:
        yield together("all judges", judgments.judges), POOL


def _measures(
    votes: Votes,
    kind: str,
    judgments: Judgments,
    second: Votes | None,
    sign: Numbers | None,
) -> dict[str, OfSums]:
    """Return an annotator's measures, by name."""
    labels, people = votes.labels, judgments.people.labels
    own = statistics.held_out_agreement(labels, PANEL)
    found = {
        "fleiss": statistics.fleiss(labels),
        "variance": statistics.error(own),
        "longer": statistics.preference_for(judgments.longer, labels),
        "lists": statistics.preference_for(judgments.lists, labels),
    }
    if kind == PEOPLE:
        found |= {"held_out": own, "person": statistics.held_out_agreement(labels, 2)}
    else:
        found |= _against_people(labels, people)
    if kind == JUDGE:
        found |= _consistency(votes)
    if second is not None and votes is not second:
        other = statistics.shares_of(second.labels)
        found["second"] = statistics.match_rate(labels, other)
        found["second_cohen"] = statistics.cohen(labels, other)
    return found if sign is None else found | _wins(labels, people, sign)


def _against_people(labels: Counts, people: Counts) -> dict[str, OfSums]:
    majority, decided = (statistics.majority(of, PANEL) for of in (people, people[:, :TIE]))
    same = statistics.majorities_agreement(labels, people, PANEL)
    return {
        "agreement": statistics.match_rate(labels, majority),
        "cohen": statistics.cohen(labels, majority),
        "decided": statistics.match_rate(labels[:, :TIE], decided),
        "held_out": statistics.match_rate(labels, statistics.in_place_standard(people, PANEL)),
        "person": statistics.match_rate(labels, statistics.shares_of(people)),
        "bias": statistics.error(same),
    }


def _consistency(votes: Votes) -> dict[str, OfSums]:
    """Return a judge's bias by order, and its consistency.

    If outputs were shown in one order only, bias for the place cannot be separated from preference
    for the output.
    """
    as_given, swapped = votes.counts[:, AS_GIVEN], votes.counts[:, SWAPPED]
    found = {
        "both_orders": statistics.order_agreement(as_given, swapped),
        "repeats": statistics.repeat_agreement([votes.counts[:, n] for n in ORDERS.values()]),
    }
    if as_given.any() and swapped.any():
        found["first_shown"] = statistics.first_shown(as_given, swapped)
    return found


def _wins(labels: Counts, people: Counts, sign: Numbers) -> dict[str, OfSums]:
    """Return how often the model's output wins, ties or loses."""
    counted = sign != 0
    if people.any():
        counted &= people.sum(axis=1) > 0
    mine = np.where(sign > 0, labels[:, SECOND], labels[:, FIRST])
    other = np.where(sign > 0, labels[:, FIRST], labels[:, SECOND])
    given = np.where(counted, labels.sum(axis=1), 0)
    shares = {"win": mine, "tie": labels[:, TIE], "lose": other}
    return {name: ratio(np.where(counted, of, 0), given) for name, of in shares.items()}


def _second(judgments: Judgments, name: str | None) -> Votes | None:
    """Return the judge of this name, or None."""
    if name is None:
        return None
    for votes in judgments.judges:
        if votes.name == name:
            return votes
    known = [votes.name for votes in judgments.judges]
    raise InputError(f"--second {name}: no such judge; the judges are {list_names(known)}")


def _sign(judgments: Judgments, model: str | None) -> Numbers | None:
    """Return 1 if the second output is the model's, -1 if the first is, 0 otherwise."""
    if model is None:
        return None
    sides = np.array([[name == model for name in pair] for pair in judgments.models], dtype=float)
    if not sides.any():
        known = sorted({name for pair in judgments.models for name in pair if name is not None})
        raise InputError(
            f"--model {model}: no output is of this model; the models are {list_names(known)}"
        )
    return sides[:, 1] - sides[:, 0]
