"""The eval sets of a run: dev prompts, which decide, and held-out prompts.

Held-out prompts may be several sets with names. Each is a separate eval set and benchmark; verdicts
are about all of them, and about each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...configs.schema import RunConfig
from ...stores.keys import derive_seed
from ...stores.records import Checkpoint, Prompt, Split
from ..data.splits import DEV, HELD_OUT, eval_set_benchmark
from ..evaluation.assess import evaluate
from ..evaluation.checkpoint_history import CheckpointHistory
from ..evaluation.observe import FEWEST
from ..evaluation.overoptimization_checks import watch
from ..evaluation.policy_verdicts import commit_verdicts
from ..evaluation.probe import probe
from ..evaluation.step_eval_sets import chosen_policy
from ..run.handles import Prompts, chunk_prompts
from ..run.iteration import Iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSets:
    """The prompts that every policy of a run is evaluated on: dev and held-out ones, in order."""

    prompts: Mapping[Split, Sequence[Prompt]]
    chunk: int

    @classmethod
    def of(cls, config: RunConfig, prompts: Sequence[Prompt]) -> "EvalSets":
        """Return the eval sets of a run of these prompts."""
        every: dict[Split, Sequence[Prompt]] = {
            DEV: deciding(config, prompts),
            HELD_OUT: eval_prompts(config, prompts),
        }
        return cls(prompts=every, chunk=config.prompts.chunk)

    def chunks(self, split: Split) -> Prompts:
        """Return a split's prompts in the chunks of a stage."""
        return chunk_prompts(self.prompts[split], self.chunk)

    @property
    def sets(self) -> Mapping[str, list[Prompt]]:
        """The prompts of each set of held-out ones, by its benchmark: one set without names."""
        found: dict[str, list[Prompt]] = {}
        for prompt in self.prompts[HELD_OUT]:
            found.setdefault(eval_set_benchmark(prompt.eval_set), []).append(prompt)
        return found or {HELD_OUT: []}


def evaluate_steps(it: Iteration, last: Checkpoint, eval_sets: EvalSets) -> Checkpoint:
    """Evaluate the policies that a training published at its steps before the last; return M_t."""
    held_out = {
        name: chunk_prompts(prompts, eval_sets.chunk) for name, prompts in eval_sets.sets.items()
    }
    return chosen_policy(it, last, eval_sets.chunks(DEV), held_out)


def evaluate_sets(
    it: Iteration, course: CheckpointHistory, eval_sets: EvalSets
) -> CheckpointHistory:
    """Evaluate M_t, and return the updated course of the run."""
    decides = bool(eval_sets.prompts[DEV])
    if decides:
        evaluate(it, eval_sets.chunks(DEV), benchmark=DEV)
    for benchmark, prompts in eval_sets.sets.items():
        evaluate(it, chunk_prompts(prompts, eval_sets.chunk), benchmark=benchmark)
    probe(it)
    if it.number == course.first:
        return course
    watch(it, DEV if len(eval_sets.prompts[DEV]) >= FEWEST else HELD_OUT)
    course = commit_verdicts(it, course, eval_sets.prompts[HELD_OUT], HELD_OUT)
    return (
        commit_verdicts(it, course, eval_sets.prompts[DEV], DEV)
        if decides
        else course.having(it.parent)
    )


def eval_prompts(config: RunConfig, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the held-out prompts that every policy of a run is evaluated on, set by set."""
    sets: dict[str, list[Prompt]] = {}
    for prompt in order_prompts(prompts, HELD_OUT, config.seed):
        sets.setdefault(prompt.eval_set or "", []).append(prompt)
    return [p for name in sorted(sets) for p in sets[name][: config.prompts.max_test]]


def deciding(config: RunConfig, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the dev prompts by which the policies of a run are compared during the run."""
    return order_prompts(prompts, DEV, config.seed)[: config.prompts.max_dev]


def order_prompts(prompts: Sequence[Prompt], split: str, seed: int) -> list[Prompt]:
    """Return the prompts of a split in an order that depends on the seed and their ids alone."""
    chosen = [prompt for prompt in prompts if prompt.split == split]
    return sorted(chosen, key=lambda p: (derive_seed(seed, "order", p.prompt_id), p.prompt_id))
