"""The reference rewards of ChatGLM-RLHF (Eq. 5): r(x, y_ref), with y_ref an answer of M_0.

An online method then optimises r(x, y) - r(x, y_ref), whose mean is near 0 while the policy still
is M_0, even if the reward model's scores differ much between prompts. Answers and rewards are
committed before training begins; filter counts here list the prompts that are skipped because their
reference answer failed or could not be scored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...policies.trainers.step_files import ReferenceReward
from ...stores.journal_reader import Unit
from ...stores.keys import digest
from ...stores.records import Candidate, FilterCount, Reward
from ...stores.schemas import RowsByType
from ..data.filter_counts import KEPT, filter_counts
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.outcomes import NothingToTrainOn
from ..run.run import Verb

REWARD_REFERENCES = Verb("reference_reward")
FILTER = "reference-reward"
FAILED, UNSCORED = "no_reference_answer", "reference_unscored"
"""Why a prompt is left out."""

ANSWERED = frozenset({"stop", "length"})
"""How the drawing of an answer ends that is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """The reference rewards of an iteration by prompt id; `key` hashes the units they come from."""

    rewards: Mapping[str, ReferenceReward]
    key: str


def references(it: Iteration, answers: Rows[Candidate], rewards: Rows[Reward]) -> References:
    """Return the rewards of M_0's answers, one a prompt; commit counts of unrewarded prompts.

    Raises:
        NothingToTrainOn: if every prompt is unrewarded.
    """

    def make(unit: Unit) -> RowsByType:
        fates = fates_of(it.chunk(answers, unit.chunk), it.chunk(rewards, unit.chunk))
        return {FilterCount: filter_counts(it.number, FILTER, "prompts", fates)}

    work = it.work(REWARD_REFERENCES, None, answers, rewards)
    planned = it.run.make(it.number, FILTER, work, make)
    it.run.decide_by(planned)
    found = dict[str, ReferenceReward]()
    for chunk in range(answers.chunks):
        found |= reference_rewards(it.chunk(answers, chunk), it.chunk(rewards, chunk))
    if not found:
        raise NothingToTrainOn(
            f"iteration {it.number}: no reference answer has a reward; see the filter counts of "
            f"{FILTER} in `lpfloop status`"
        )
    return References(rewards=found, key=digest(planned.keys(it.run.store.journal)))


def fates_of(answers: Sequence[Candidate], rewards: Sequence[Reward]) -> Mapping[str, list[str]]:
    """Return the prompts' ids by outcome."""
    scored = reference_rewards(answers, rewards)
    fates = dict[str, list[str]]()
    for answer in answers:
        unscored = UNSCORED if answer.finish_reason in ANSWERED else FAILED
        fate = KEPT if answer.prompt_id in scored else unscored
        fates.setdefault(fate, []).append(answer.prompt_id)
    return fates


def reference_rewards(
    answers: Sequence[Candidate], rewards: Sequence[Reward]
) -> dict[str, ReferenceReward]:
    """Return the rewards of the answers that have one, by prompt id."""
    scores = {reward.candidate_id: reward.score for reward in rewards}
    return {
        answer.prompt_id: ReferenceReward(score=score, ended=answer.finish_reason == "stop")
        for answer in answers
        for score in [scores.get(answer.candidate_id)]
        if score is not None and answer.finish_reason in ANSWERED
    }
