"""The verbs of an iteration: sample, critique, reward, refine, pair, train, evaluate.

A verb states what is owed: it plans its units (one a chunk of prompts, each under a key that hashes
all it depends on), subtracts what is committed and pays the rest. A recipe calls verbs from the
top; to resume is to run the recipe again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...configs.recipes import Binarisation
from ...configs.section import Place
from ...stores.records import (
    Candidate,
    Checkpoint,
    Critique,
    Demonstration,
    Grade,
    Pair,
    Preference,
    Reward,
    RewardModel,
)
from ..data.pairs import Rule
from ..data.splits import HELD_OUT, Part, part_of
from ..evaluation.assess import Exam, assess, evaluate
from ..evaluation.best_of_curve import benchmark, best_answers, curve
from ..evaluation.probe import probe
from ..run.handles import Best, JudgedRows, Prompts, Rows, T, chunked
from ..run.reporter import Advance
from ..run.run import Work
from ..run.turn import Turn
from ..stages.balance_length import balanced
from ..stages.compare import annotate, compare
from ..stages.complete import complete
from ..stages.critique import Judging
from ..stages.critique_sft import demonstrate_critiques
from ..stages.grade import grade, grade_overall
from ..stages.human_sft import demonstrations
from ..stages.imitate import condition, demonstrate_preferred
from ..stages.mix import mixed
from ..stages.online_rl import Method, OnlineTraining, optimise
from ..stages.pair import binarise, make
from ..stages.prefer import prefer
from ..stages.reference_reward import References, references
from ..stages.reward import Scoring
from ..stages.sample import refine, sample
from ..stages.supervised_set import supervision
from ..stages.train import train
from ..stages.train_reward import train_reward
from ..stages.variance_filter import require_reward, varied


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

    def varied(self, prompts: Prompts, reward: RewardModel | None) -> Prompts:
        """Those prompts whose answers y_1 .. y_K ~ pi(x) differ in r(x, y), if a margin is set."""
        config = self.run.config.prompts.variance
        if config.margin is None:
            return prompts
        require_reward(self, reward)
        answers = sample(self, prompts, n=config.k, label="sample:variance", purpose="variance")
        return varied(self, prompts, answers, self.reward(answers, by=reward), config.margin)

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

    def complete(self, prompts: Prompts, *, n: int) -> Rows[Candidate]:
        """y_i ~ pi_i(principle_i, x): n completions a prompt, by different models of the pool."""
        return complete(self, prompts, n=n)

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
        """p_ann(x, y0, y1): two of each prompt's candidates, or all, compared by annotators."""
        return annotate(self, candidates)

    def grade(self, candidates: Rows[Candidate]) -> Rows[Grade]:
        """q_a(x, y_1..y_n): all candidates of a prompt rated together, in each of four aspects."""
        return grade(self, candidates)

    def grade_overall(self, candidates: Rows[Candidate]) -> Rows[Grade]:
        """q(x, y): each candidate critiqued by itself, with an overall score."""
        return grade_overall(self, candidates)

    def compare(self, answers: Rows[Candidate], outputs: Rows[Candidate]) -> Rows[Preference]:
        """p_eval(x, y_ref, y): each answer compared with a reference's output."""
        return compare(self, answers, outputs)

    def prefer(self, candidates: Rows[Candidate], preferences: Rows[Preference]) -> Rows[Pair]:
        """(x, y+, y-): what annotators preferred against what they did not."""
        return balanced(self, prefer(self, candidates, preferences), candidates)

    def best(self, candidates: Rows[Candidate], *, by: Rows[Reward]) -> Best:
        """y~ = argmax r(x, y): the promising candidate of each prompt."""
        return Best(candidates=candidates, rewards=by)

    def refine(self, best: Best, critiques: Rows[Critique], *, m: int) -> Rows[Candidate]:
        """z_j ~ pi(x, y~, f(x, y~)): m refinements of the promising candidate."""
        return refine(self, best, critiques, m=m)

    def pair(self, judged: JudgedRows, *, rule: Rule, top_k: int) -> Rows[Pair]:
        """(x, y+, y-): positives of the rule, each against a random negative."""
        pairs = make(self, "pair", Pair, judged, rule=rule, top_k=top_k)
        return balanced(self, pairs, judged.candidates)

    def binarise(
        self, candidates: Rows[Candidate], grades: Rows[Grade], *, rule: Binarisation
    ) -> Rows[Pair]:
        """(x, y+, y-): each prompt's best graded completion against one with a lower score."""
        return balanced(self, binarise(self, candidates, grades, rule), candidates)

    def mixed(self, pairs: Rows[Pair], files: Sequence[Place]) -> Rows[Pair]:
        """Return the pairs together with other people's, read of files."""
        return mixed(self, pairs, [Path(name) for name in files])

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

    def demonstrate_critiques(
        self, candidates: Rows[Candidate], critiques: Rows[Critique]
    ) -> Rows[Demonstration]:
        """(q(x, y), f(x, y)): what the critic was asked about each answer, and what it said."""
        return demonstrate_critiques(self, candidates, critiques)

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
        return self._optimise("ppo", prompts, reward)

    def quark(self, prompts: Prompts, reward: RewardModel | None) -> Checkpoint:
        """M_t: the policy after Quark on these prompts by a reward model, a step a unit."""
        return self._optimise("quark", prompts, reward)

    def evaluate(self, prompts: Prompts, *, benchmark: str = HELD_OUT) -> None:
        """Measure the policy's answers: verified scores, length, ratings; more by `assessment`.

        With the run's own held-out prompts come its capability probes.
        """
        evaluate(self, prompts, benchmark)
        if benchmark == HELD_OUT:
            probe(self)

    def measure_best_of(self, best: Best, *, most: int) -> None:
        """Measure the best of n answers, n = 1, 2, 4 .. most, and assess those of the largest n."""
        curve(self, best, most=most)
        self.assess_answers(best_answers(self, best), benchmark=benchmark(most))

    def assess_answers(self, answers: Rows[Candidate], *, benchmark: str) -> None:
        """Measure answers to the held-out prompts that were chosen, not drawn, as the policy's."""
        exam = Exam(prompts=self.held_out, name=HELD_OUT, benchmark=benchmark)
        assess(self, answers, exam)

    def _optimise(self, method: Method, prompts: Prompts, reward: RewardModel | None) -> Checkpoint:
        """Train the policy online; before that, commit what it reads besides prompts and reward."""
        training = OnlineTraining(turn=self, method=method, prompts=prompts, reward=reward)
        training.require_trainable()
        relative = training.settings.reference_reward
        found = self._references(prompts, reward) if relative else None
        return optimise(replace(training, references=found, supervision=supervision(self)))

    def _references(self, prompts: Prompts, reward: RewardModel | None) -> References:
        """r(x, y_ref), y_ref ~ M_0(x): what rewards are relative to."""
        first = replace(self, policy=self.run.models.initial)
        answers = first.sample(prompts, n=1, label="sample:reference")
        return references(self, answers, self.reward(answers, by=reward))

    def _assess(
        self, verb: str, row_type: type[T], assessor: Judging | Scoring, candidates: Rows[Candidate]
    ) -> Rows[T]:
        """Pay a stage that says something of each candidate."""
        label = f"{verb}:{candidates.label}"
        owed = self.work(verb, assessor.identity, candidates)
        with self.run.stage(self.number, label, owed, judge=verb == "critique") as stage:
            assessor.pay(stage, lambda unit: self.chunk(candidates, unit.chunk))
        return Rows(row_type=row_type, stages=(stage.planned,))
