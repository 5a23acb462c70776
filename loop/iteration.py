"""The verbs of an iteration: sample, critique, reward, refine, pair, train, evaluate.

A verb states what is owed: it plans its units (one a chunk of prompts, each under a key that hashes
all it depends on), subtracts what is committed and pays the rest. A recipe calls verbs from the
top; to resume is to run the recipe again.
"""

from dataclasses import dataclass, replace
from typing import Literal

from ..stores.records import (
    Candidate,
    Checkpoint,
    Critique,
    Demonstration,
    Pair,
    Preference,
    Reward,
    RewardModel,
)
from .annotation.comparing import annotate, compare
from .annotation.preferring import prefer
from .assessment.assessing import Exam, assess, evaluate
from .assessment.best_of import benchmark, best_answers, curve
from .demonstrations import demonstrations
from .drawing import refine, sample
from .evaluation import HELD_OUT
from .imitating import condition, demonstrate_preferred
from .judging import Judging
from .making import make
from .online import optimise
from .pairing import Rule
from .parts import Part, part_of
from .reporter import Advance
from .rewarding import train_reward
from .rows import Best, JudgedRows, Prompts, Rows, T, chunked
from .run import Work
from .scoring import Scoring
from .training import train
from .turn import Turn


@dataclass(frozen=True, kw_only=True)
class Iteration(Turn):
    """One turn of the loop: from the policy M_{t-1} to the checkpoint M_t."""

    def prompts(self, part: Part | None = None) -> Prompts:
        """Return the prompts of this iteration, x ~ D, or those that serve one purpose."""
        if part is None:
            return self.train_prompts
        config = self.run.config.prompts
        every = [prompt for chunk in self.train_prompts.chunks for prompt in chunk]
        return chunked(part_of(every, part, config.parts), config.chunk)

    @property
    def has_reward(self) -> bool:
        """Whether a reward model is configured, so that none need be trained."""
        return self.run.models.reward_id is not None

    def unchanged(self) -> Checkpoint:
        """M_t = M_{t-1}: end a turn that makes something else than a policy."""
        row = replace(self.parent, iteration=self.number, recipe=self.run.config.recipe.name)
        owed = Work(
            verb="unchanged",
            params={"policy": self.policy.params, "recipe": row.recipe},
            upstream=(),
            reads=lambda: [(self.parent.checkpoint_id,)],
        )
        with self.run.stage(self.number, "unchanged", owed) as stage:
            for unit in stage.owed:
                stage.commit(unit, {Checkpoint: [row]}, Advance(rows=1))
        return row

    def sample(
        self, prompts: Prompts, *, n: int, top_p: float | None = None, label: str = "sample"
    ) -> Rows[Candidate]:
        """y_i ~ pi(x): n candidates a prompt, each under its own seed.

        `top_p` stands in for the policy's own; a second sampling of a turn needs another `label`.
        """
        return sample(self, prompts, n=n, top_p=top_p, label=label)

    def critique(self, candidates: Rows[Candidate]) -> Rows[Critique]:
        """f(x, y): one critique a candidate, with the reference where the task has one."""
        judging = Judging(run=self.run, iteration=self.number)
        return self._assess("critique", Critique, judging, candidates)

    def train_reward(self, pairs: Rows[Pair]) -> RewardModel:
        """Train a reward model on pairs, from the body of M_0."""
        return train_reward(self, pairs)

    def reward(self, candidates: Rows[Candidate], *, by: RewardModel | None = None) -> Rows[Reward]:
        """r(x, y): the scalar of a reward model, default the configured one, for each candidate."""
        scoring = Scoring(run=self.run, iteration=self.number, model=by)
        return self._assess("reward", Reward, scoring, candidates)

    def annotate(self, candidates: Rows[Candidate]) -> Rows[Preference]:
        """p_ann(x, y0, y1): two of each prompt's candidates compared by annotators."""
        return annotate(self, candidates)

    def compare(self, answers: Rows[Candidate], outputs: Rows[Candidate]) -> Rows[Preference]:
        """p_eval(x, y_ref, y): each answer compared with a reference's output."""
        return compare(self, answers, outputs)

    def prefer(self, candidates: Rows[Candidate], preferences: Rows[Preference]) -> Rows[Pair]:
        """(x, y+, y-): what annotators preferred against what they did not."""
        return prefer(self, candidates, preferences)

    def best(self, candidates: Rows[Candidate], *, by: Rows[Reward]) -> Best:
        """y~ = argmax r(x, y): the promising candidate of each prompt."""
        return Best(candidates=candidates, rewards=by)

    def refine(self, best: Best, critiques: Rows[Critique], *, m: int) -> Rows[Candidate]:
        """z_j ~ pi(x, y~, f(x, y~)): m refinements of the promising candidate."""
        return refine(self, best, critiques, m=m)

    def pair(self, judged: JudgedRows, *, rule: Rule, top_k: int) -> Rows[Pair]:
        """(x, y+, y-): positives of the rule, each against a random negative."""
        return make(self, "pair", Pair, judged, rule=rule, top_k=top_k)

    def demonstrate(self, judged: JudgedRows, *, rule: Rule, top_k: int) -> Rows[Demonstration]:
        """(x, y+): the positives of the rule, as a rejection-sampling set."""
        return make(self, "demonstrate", Demonstration, judged, rule=rule, top_k=top_k)

    def demonstrations(self, prompts: Prompts) -> Rows[Demonstration]:
        """(x, y): what people answered to the prompts."""
        return demonstrations(self, prompts)

    def demonstrate_preferred(
        self, candidates: Rows[Candidate], preferences: Rows[Preference]
    ) -> Rows[Demonstration]:
        """(x, y+): what annotators preferred."""
        return demonstrate_preferred(self, candidates, preferences)

    def condition(
        self,
        candidates: Rows[Candidate],
        preferences: Rows[Preference],
        *,
        positive: str,
        negative: str,
    ) -> Rows[Demonstration]:
        """(c+ x, y+) and (c- x, y-): both answers of a pair, behind a control text each."""
        return condition(self, candidates, preferences, positive=positive, negative=negative)

    def train(
        self,
        rows: Rows[Pair] | Rows[Demonstration],
        *,
        start: Literal["initial", "previous"] = "previous",
    ) -> Checkpoint:
        """M_t: a policy trained by DPO on pairs, or by SFT on demonstrations, and published.

        Training begins with M_{t-1}, or with M_0 where `start` is initial.

        Raises:
            NothingToTrainOn: if there are fewer rows than `training.min_pairs`.
        """
        return train(self, rows, self.run.models.initial if start == "initial" else self.policy)

    def ppo(self, prompts: Prompts, reward: RewardModel | None) -> Checkpoint:
        """M_t: the policy after PPO on these prompts against a reward model, a step a unit."""
        return optimise(self, "ppo", prompts, reward)

    def quark(self, prompts: Prompts, reward: RewardModel | None) -> Checkpoint:
        """M_t: the policy after Quark on these prompts by a reward model, a step a unit."""
        return optimise(self, "quark", prompts, reward)

    def evaluate(self, prompts: Prompts, *, benchmark: str = HELD_OUT) -> None:
        """Measure the policy's answers: verified scores, length, ratings; more by `assessment`."""
        evaluate(self, prompts, benchmark)

    def measure_best_of(self, best: Best, *, most: int) -> None:
        """Measure the best of n answers, n = 1, 2, 4 .. most, and assess those of the largest n."""
        curve(self, best, most=most)
        self.assess_answers(best_answers(self, best), benchmark=benchmark(most))

    def assess_answers(self, answers: Rows[Candidate], *, benchmark: str) -> None:
        """Measure answers to the held-out prompts that were chosen, not drawn, as the policy's."""
        exam = Exam(prompts=self.held_out, name=HELD_OUT, benchmark=benchmark)
        assess(self, answers, exam)

    def _assess(
        self, verb: str, row_type: type[T], assessor: Judging | Scoring, candidates: Rows[Candidate]
    ) -> Rows[T]:
        """Pay a stage that says something of each candidate."""
        label = f"{verb}:{candidates.label}"
        owed = self.work(verb, assessor.identity, candidates)
        with self.run.stage(self.number, label, owed, judge=verb == "critique") as stage:
            assessor.pay(stage, lambda unit: self.chunk(candidates, unit.chunk))
        return Rows(row_type=row_type, stages=(stage.planned,))
