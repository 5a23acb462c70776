# pyright: basic
"""The reward of an answer: the weighted sum of the scores that each reward source gives it.

The reward model, or the user's function, scores in this process; the parent calls the verifier
and the critic. If one of them gives an answer no score, the answer is without a reward.
"""

from collections.abc import Mapping, Sequence
from math import fsum

from ...stores.records import Message
from ..engines.engine import Completion, EngineError, ScoreBatch, ScoreRequest
from ..engines.scorers import OwnScorer, RewardScorer
from ..trainers.job import OnlineJob, RewardSource, TrainingError, TrainJob
from ..trainers.step_files import RolloutDraw, ask_parent, candidate_row
from ..trainers.work_folder import PULSE

SCORED_TOGETHER = 256


def weighted_sum(
    scores: Mapping[RewardSource, float | None], weights: Mapping[RewardSource, float]
) -> float | None:
    """Return the weighted sum of an answer's scores; None if one is missing."""
    found = [weights[source] * s for source, s in scores.items() if s is not None]
    return fsum(found) if len(found) == len(scores) else None


class AnswerRewards:
    """Scores the answers of a job's steps, in this process and through its parent."""

    def __init__(self, job: TrainJob, online: OnlineJob) -> None:
        self._job = job
        self._online = online
        self._scorer = _scorer(job, online) if "reward" in online.sources else None

    def of(
        self, step: int, rollouts: Sequence[RolloutDraw], completions: Sequence[Completion]
    ) -> list[dict[RewardSource, float | None]] | None:
        """Return the score of each reward source for each of a step's answers, in their order.

        None if a request to end the training came while the parent judged them.
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
            for scores, rollout in zip(found, rollouts, strict=True):
                scores.update(judged[rollout.candidate_id])
        return found

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
                ended=c.finish_reason == "stop",
            )
            for r, c in zip(rollouts, completions, strict=True)
        )
        batches = (
            ScoreBatch(key=str(first), requests=requests[first : first + SCORED_TOGETHER])
            for first in range(0, len(requests), SCORED_TOGETHER)
        )
        try:
            return [score for result in scorer.score(batches) for score in result.answers]
        except EngineError as error:
            raise TrainingError("refused", str(error)) from error

    def close(self) -> None:
        """Release the reward model."""
        if self._scorer is not None:
            self._scorer.close()


def _scorer(job: TrainJob, online: OnlineJob) -> RewardScorer | OwnScorer:
    """Return the scorer of this process: a reward model, or the user's function."""
    if online.function is not None:
        return OwnScorer(online.function, online.reward, online.reward_id)
    if job.reward is None:
        raise TrainingError("refused", f"{job.method} needs a reward model; give --reward")
    return RewardScorer(job.reward, online.reward)
