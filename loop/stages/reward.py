"""Rewarding candidates: the scalar r(x, y) of the reward model for each conversation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...policies.engines.engine import ScoreBatch, ScoreRequest
from ...stores.journal_reader import Cost, Unit
from ...stores.keys import Json
from ...stores.records import SCORED, Candidate, Message, Reward, RewardModel
from ..run.admission import Admission
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.models import NO_MODEL
from ..run.reporter import Advance
from ..run.run import Run, Stage

OVERLONG = "overlong"
UNREWARDED = "no_reward_model"


def reward(
    it: Iteration, candidates: Rows[Candidate], *, by: RewardModel | None = None
) -> Rows[Reward]:
    """r(x, y): commit the scalar of a reward model, default the configured one, a candidate."""
    scoring = Scoring(run=it.run, iteration=it.number, model=by)
    owed = it.work("reward", scoring.identity, candidates)
    with it.run.stage(it.number, f"reward:{candidates.label}", owed) as stage:
        scoring.pay(stage, lambda unit: it.chunk(candidates, unit.chunk))
    return Rows(row_type=Reward, stages=(stage.planned,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """A stage of rewards, one a candidate: by `model`, or by the configured reward model."""

    run: Run
    iteration: int
    model: RewardModel | None = None

    @property
    def identity(self) -> Json:
        """What a reward depends on besides its candidate."""
        config = self.run.config.reward
        return {
            "model": self.reward_id,
            "batch_size": config.batch_size,
            "max_length": config.max_length,
            **({} if config.sees_end else {"sees_end": False}),
        }

    @property
    def reward_id(self) -> str | None:
        """The reward model: the given one, or the configured one if there is one."""
        return self.model.reward_model_id if self.model else self.run.models.reward_id

    def pay(self, stage: Stage, work: Callable[[Unit], Sequence[Candidate]]) -> None:
        """Score what the stage owes; `work` gives a unit's candidates when their turn has come."""
        if not stage.owed:
            return
        for unit, candidates, scores in self._scored(stage, work):
            rows = [self._row(c, score) for c, score in zip(candidates, scores, strict=True)]
            unscored = sum(row.status == OVERLONG for row in rows)
            stage.commit(unit, {Reward: rows}, Advance(rows=len(rows), unscored=unscored))

    def _scored(
        self, stage: Stage, work: Callable[[Unit], Sequence[Candidate]]
    ) -> Iterator[tuple[Unit, Sequence[Candidate], Sequence[float | None]]]:
        if self.reward_id is None:
            for unit in stage.owed:
                self.run.stop.admit()
                candidates = work(unit)
                yield unit, candidates, [None] * len(candidates)
            return
        admitted: dict[str, tuple[Unit, Sequence[Candidate]]] = {}
        folder = self.run.reward_folder(self.model) if self.model else None
        scorer = self.run.models.scorer(folder)
        for result in scorer.score(self._batches(stage, work, admitted)):
            yield (*admitted.pop(result.key), result.scores)

    def _batches(
        self,
        stage: Stage,
        work: Callable[[Unit], Sequence[Candidate]],
        admitted: dict[str, tuple[Unit, Sequence[Candidate]]],
    ) -> Admission[ScoreBatch]:
        def prepare(unit: Unit) -> ScoreBatch:
            candidates = work(unit)
            admitted[unit.key] = (unit, candidates)
            return ScoreBatch(
                key=unit.key,
                requests=tuple(
                    ScoreRequest(request_id=c.candidate_id, messages=self._conversation(c))
                    for c in candidates
                ),
            )

        return self.run.admission(stage, prepare, lambda _: Cost())

    def _conversation(self, candidate: Candidate) -> tuple[Message, ...]:
        prompt = self.run.prompts[candidate.prompt_id]
        return (*prompt.messages, Message(role="assistant", content=candidate.text))

    def _row(self, candidate: Candidate, score: float | None) -> Reward:
        missing = UNREWARDED if self.reward_id is None else OVERLONG
        return Reward(
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            reward_model=self.reward_id or NO_MODEL,
            score=score,
            status=SCORED if score is not None else missing,
        )
