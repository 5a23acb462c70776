"""Assessment of a policy's answers: each is verified, rated and compared.

Every number is the mean of prompt-level scores, which are stored: verified correctness, length and
ratings always; the reward if the recipe has a reward model; win-rate against M_0 or another
reference, true score and KL to M_0 as `assessment` is configured. The length-controlled win-rate is
fitted to all comparisons at once.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from ...configs.annotation import INITIAL, of_eval_set
from ...configs.load import semantic
from ...configs.schema import ConfigError
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Evaluation, Preference, Reward, Score
from ...stores.schemas import RowsByType
from ..data.splits import DEV, HELD_OUT, eval_set_of, is_measured_on
from ..data.stage_names import step_benchmark, step_params
from ..run.handles import AnyRows, Prompts, Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from ..stages.compare import compare
from ..stages.critique import critique
from ..stages.reward import reward
from ..stages.sample import answers as answers_of
from .kl_divergence import divergence
from .length_control import at_equal_lengths, win_scores
from .measure_facts import measure_facts
from .measure_scores import measure_scores
from .metrics import (
    Clusters,
    MeasuredAnswers,
    clustered_params,
    every_row,
    given_clusters,
    prompt_scores,
    score_of,
    summarise,
)
from .reference_outputs import has_outputs, reference_outputs

MEASURE, ASSESS = Verb("measure"), Verb("assess", semantics=3)
REWARD, TRUE_SCORE = "reward", "true_score"
UNDRAWN = ("failed", "overlong")

V = TypeVar("V")
Oracle = Callable[[str, str], float | None]
"""Returns the true score of an answer to an instruction, None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSet:
    """The prompts, the label of their set, and the benchmark of the results.

    `step` is the training step at which the examined policy was published, None for M_t.
    """

    prompts: Prompts
    name: str
    benchmark: str
    step: int | None = None

    @property
    def held_out(self) -> bool:
        """Whether they are held-out prompts of the run: all of them, or a named set."""
        return is_measured_on(self.name, HELD_OUT)

    def setting(self, value: V | Mapping[str, V] | None) -> V | None:
        """Return the value of a setting about held-out prompts for these prompts."""
        return of_eval_set(value, eval_set_of(self.name)) if self.held_out else None

    @property
    def clusters(self) -> Clusters:
        """The clusters that the prompts name."""
        return given_clusters(prompt for chunk in self.prompts.chunks for prompt in chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalEvidence:
    """Answers, and their judgments beyond verification and ratings."""

    answers: Rows[Candidate]
    outputs: Rows[Candidate] | None = None
    preferences: Rows[Preference] | None = None
    rewards: Rows[Reward] | None = None
    divergence: Rows[Score] | None = None

    @property
    def judgments(self) -> list[AnyRows]:
        """The handles of the judgments, without the answers."""
        every = (self.outputs, self.preferences, self.rewards, self.divergence)
        return [rows for rows in every if rows is not None]


def load_oracle(path: str) -> Oracle:
    """Return the function at a dotted path such as `package.module:function`.

    Raises:
        ConfigError: if it cannot be loaded or is not a function.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"assessment.oracle {path!r} cannot be loaded: {error}") from error
    if not callable(found):
        raise ConfigError(f"assessment.oracle {path!r} is not a function")
    return cast("Oracle", found)


def evaluate(
    it: Iteration, prompts: Prompts, *, benchmark: str = HELD_OUT, step: int | None = None
) -> None:
    """Draw the policy's answer to each prompt; measure verified scores, length and ratings.

    `assessment` configures further measurements. `step` identifies a policy that was published
    during the training of M_t.
    """
    own = step_benchmark(benchmark, step)
    eval_set = EvalSet(prompts=prompts, name=benchmark, benchmark=own, step=step)
    drawn = _draw_answers(it, eval_set)
    moved = divergence(it, prompts, own, step) if it.run.config.assessment.kl else None
    assess(it, drawn, eval_set, moved)


def _draw_answers(it: Iteration, eval_set: EvalSet) -> Rows[Candidate]:
    """Draw the policy's answer to each prompt of an eval set."""
    sampling = it.run.config.evaluation
    params = {
        "policy": it.policy.params,
        "sampling": semantic(sampling),
        **step_params(eval_set.step),
    }
    return answers_of(
        it, eval_set.prompts, f"evaluate:{eval_set.benchmark}", "greedy", sampling, params
    )


def _answers_of_initial(it: Iteration, eval_set: EvalSet) -> Rows[Candidate]:
    """Return M_0's answers of iteration 0, drawn now if the run did not begin there."""
    whole = replace(eval_set, benchmark=eval_set.name, step=None)
    return _draw_answers(replace(it, number=0, policy=it.run.models.initial), whole)


def assess(
    it: Iteration, answers: Rows[Candidate], eval_set: EvalSet, moved: Rows[Score] | None = None
) -> EvalEvidence:
    """Assess answers, and return their judgments; `moved` are their scores of KL to M_0."""
    _measure(it, answers, eval_set)
    measure_facts(it, answers, eval_set.prompts, eval_set.benchmark, eval_set.clusters)
    measure_scores(it, answers, eval_set.name, eval_set.benchmark, eval_set.clusters)
    evidence = _collect(it, answers, eval_set, moved)
    # The reference and the oracle cover only the run's own held-out prompts.
    path = it.run.config.assessment.oracle if eval_set.held_out else None
    if not evidence.judgments and path is None:
        return evidence
    clusters = eval_set.clusters

    def make(_: Unit) -> RowsByType:
        scores = list(_scores(it, evidence, eval_set.benchmark, path))
        numbers = [
            *summarise([*scores, *every_row(it, evidence.divergence)], clusters),
            *_length_controlled(it, evidence, eval_set),
        ]
        return {Score: scores, Evaluation: numbers}

    others: Json = {"benchmark": eval_set.benchmark, "oracle": path}
    params = clustered_params(others, clusters)
    work = it.whole(ASSESS, params, answers, *evidence.judgments)
    it.run.make(it.number, f"assess:{eval_set.benchmark}", work, make)
    return evidence


def _measure(it: Iteration, answers: Rows[Candidate], eval_set: EvalSet) -> None:
    """Verify answers, and rate them if the run has a critic."""
    benchmark, clusters = eval_set.benchmark, eval_set.clusters
    critiques = critique(it, answers, samples=1) if it.run.rates else None

    def measured(chunk: int) -> MeasuredAnswers:
        candidates = it.chunk(answers, chunk)
        items = [(it.run.prompts[c.prompt_id], c.text) for c in candidates]
        return MeasuredAnswers(
            benchmark=benchmark,
            checkpoint_id=it.policy.identity,
            candidates=candidates,
            verdicts=it.run.verifier.verify(items),
            critiques={c.candidate_id: c for c in it.chunk(critiques, chunk)} if critiques else {},
        )

    def make(_: Unit) -> RowsByType:
        scores = [s for chunk in range(answers.chunks) for s in prompt_scores(measured(chunk))]
        return {Score: scores, Evaluation: summarise(scores, clusters)}

    read = (answers,) if critiques is None else (answers, critiques)
    params = it.run.verifier.params(clustered_params(benchmark, clusters))
    work = it.whole(MEASURE, params, *read)
    it.run.make(it.number, f"measure:{benchmark}", work, make)


def _collect(
    it: Iteration, answers: Rows[Candidate], eval_set: EvalSet, moved: Rows[Score] | None
) -> EvalEvidence:
    assessment = it.run.config.assessment
    outputs = outputs_of(it, eval_set)
    with_reward = assessment.reward is not False and it.run.models.reward_id is not None
    return EvalEvidence(
        answers=answers,
        outputs=outputs,
        preferences=None
        if outputs is None
        else compare_with_reference(it, eval_set, answers, outputs),
        rewards=reward(it, answers) if with_reward else None,
        divergence=moved,
    )


def outputs_of(it: Iteration, eval_set: EvalSet) -> Rows[Candidate] | None:
    """Return the reference answers with which answers of an eval set are compared, if any."""
    reference = _reference(it, eval_set)
    if reference == INITIAL:
        return _answers_of_initial(it, eval_set)
    if reference is not None and (
        eval_set.held_out
        or (eval_set.step is not None and has_outputs(reference, eval_set.prompts))
    ):
        return reference_outputs(it.run, reference, eval_set.prompts, eval_set.name)
    return None


def compare_with_reference(
    it: Iteration, eval_set: EvalSet, answers: Rows[Candidate], outputs: Rows[Candidate]
) -> Rows[Preference]:
    """Compare answers with the reference's by p_eval; with M_0's own in both orders."""
    both = _reference(it, eval_set) == INITIAL
    return compare(it, answers, outputs, order="both" if both else None)


def _reference(it: Iteration, eval_set: EvalSet) -> str | None:
    """Return the reference of an eval set; dev prompts use only one that is set for all."""
    setting = it.run.config.assessment.reference
    if eval_set.name == DEV:
        return setting if isinstance(setting, str) else None
    return eval_set.setting(setting)


def _scores(
    it: Iteration, evidence: EvalEvidence, benchmark: str, path: str | None
) -> Iterator[Score]:
    """Yield the scores of each answer; unread or failed ones are skipped."""

    def score(metric: str, prompt_id: str, candidate_id: str, value: float) -> Score:
        return score_of(it, benchmark, metric, value, prompt=prompt_id, candidate=candidate_id)

    yield from win_scores(it, benchmark, every_row(it, evidence.preferences))
    for row in every_row(it, evidence.rewards):
        if row.score is not None:
            yield score(REWARD, row.prompt_id, row.candidate_id, row.score)
    if path is None:
        return
    oracle = load_oracle(path)
    for row in every_row(it, evidence.answers):
        if row.finish_reason not in UNDRAWN:
            value = oracle(it.run.prompts[row.prompt_id].instruction, row.text)
            if value is not None:
                yield score(TRUE_SCORE, row.prompt_id, row.candidate_id, value)


def _length_controlled(
    it: Iteration, evidence: EvalEvidence, eval_set: EvalSet
) -> list[Evaluation]:
    lengths = {row.candidate_id: len(row.text) for row in every_row(it, evidence.answers)}
    lengths |= {row.candidate_id: len(row.text) for row in every_row(it, evidence.outputs)}
    read = list(every_row(it, evidence.preferences))
    return at_equal_lengths(it, eval_set.benchmark, eval_set.clusters, read, lengths)
