# pyright: basic
"""What the answers of a step are worth: the sum, by their weights, of what each source says.

The reward model, or the user's own function, scores in this process; the verifier and the critic
are asked by its parent. An answer that one of them has no score for has no reward.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from ...stores.records import Message
from ..engines.engine import Completion, EngineError, ScoreBatch, ScoreRequest
from ..engines.scorers import OwnScorer, RewardScorer
from ..trainers.job import OnlineJob, RewardSource, TrainingError, TrainJob
from ..trainers.reward_exchange import ask_parent
from ..trainers.step_files import RolloutDraw, candidate_row
from ..trainers.work_folder import PULSE

SCORED_TOGETHER = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReward:
    """What an answer is worth: the scores of the sources that were asked, and their sum."""

    scores: Mapping[RewardSource, float | None]
    weights: Mapping[RewardSource, float]

    @property
    def lacking(self) -> RewardSource | None:
        """The first source that has no score for the answer."""
        return next((source for source, score in self.scores.items() if score is None), None)

    @property
    def total(self) -> float | None:
        """The sum of all scores by their weights; None if one is missing."""
        parts = [
            self.weights[source] * score
            for source, score in self.scores.items()
            if score is not None
        ]
        return None if self.lacking else fsum(parts)


class AnswerRewards:
    """Scores the answers of a job's steps, here and by way of its parent."""

    def __init__(self, job: TrainJob, online: OnlineJob) -> None:
        self._job = job
        self._online = online
        self._scorer = _scorer(job, online) if "reward" in online.sources else None

    def of(
        self, step: int, rollouts: Sequence[RolloutDraw], completions: Sequence[Completion]
    ) -> list[AnswerReward] | None:
        """Return what a step's answers are worth, in their order.

        None if the training was asked to end while the parent judged them.
        """
        found: list[dict[RewardSource, float | None]] = [{} for _ in rollouts]
        if self._scorer is not None:
            own = self._scores(self._scorer, rollouts, completions)
            for scores, score in zip(found, own, strict=True):
                scores["reward"] = score
        if self._online.asked_sources:
            judged = ask_parent(
                self._job.output,
                step,
                [
                    candidate_row(self._online, rollout, completion)
                    for rollout, completion in zip(rollouts, completions, strict=True)
                ],
                self._online.asked_sources,
                alive=self._job.folder(PULSE).touch,
            )
            if judged is None:
                return None
            for scores, answer in zip(found, judged, strict=True):
                scores.update(answer.scores)
        return [AnswerReward(scores=scores, weights=self._online.weights) for scores in found]

    def _scores(
        self,
        scorer: RewardScorer | OwnScorer,
        rollouts: Sequence[RolloutDraw],
        completions: Sequence[Completion],
    ) -> list[float | None]:
        """Score the answers as the reward stage does: by their text, tokenized again."""
        requests = tuple(
            ScoreRequest(
                request_id=r.candidate_id,
                messages=(*r.asked.messages, Message(role="assistant", content=c.text)),
                prompt=r.asked.prompt,
                ended=self._online.reward.shown_ended(c.finish_reason),
            )
            for r, c in zip(rollouts, completions, strict=True)
        )
        batches = (
            ScoreBatch(key=str(first), requests=requests[first : first + SCORED_TOGETHER])
            for first in range(0, len(requests), SCORED_TOGETHER)
        )
        try:
            return [score for result in scorer.score(batches) for score in result.scores]
        except EngineError as error:
            raise TrainingError("refused", str(error)) from error

    def close(self) -> None:
        """Release the reward model."""
        if self._scorer is not None:
            self._scorer.close()


def _scorer(job: TrainJob, online: OnlineJob) -> RewardScorer | OwnScorer:
    """Return what scores answers here: a reward model, or the user's own function."""
    if online.function is not None:
        return OwnScorer(online.function, online.reward, online.reward_id)
    if job.reward is None:
        raise TrainingError("refused", f"{job.method} needs a reward model; give --reward")
    return RewardScorer(job.reward, online.reward)
