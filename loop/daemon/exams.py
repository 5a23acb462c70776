"""The exams that each policy of a run takes: on dev prompts, which decide, and on held-out ones.

Held-out prompts may be several sets with names. Each is a separate exam and benchmark; verdicts are
about all of them, and about each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...configs.schema import RunConfig
from ...stores.keys import derive_seed
from ...stores.records import Checkpoint, Prompt, Split
from ..data.splits import DEV, HELD_OUT, exam_benchmark
from ..evaluation.assess import evaluate
from ..evaluation.course import Course
from ..evaluation.observed import FEWEST
from ..evaluation.policy_verdicts import judged
from ..evaluation.probe import probe
from ..evaluation.step_exams import chosen_policy
from ..evaluation.watch_policy import watch
from ..run.handles import Prompts, chunked
from ..run.iteration import Iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Exams:
    """The prompts that every policy of a run is evaluated on: dev and held-out ones, in order."""

    prompts: Mapping[Split, Sequence[Prompt]]
    chunk: int

    @classmethod
    def of(cls, config: RunConfig, prompts: Sequence[Prompt]) -> "Exams":
        """Return the exams of a run of these prompts."""
        every: dict[Split, Sequence[Prompt]] = {
            DEV: deciding(config, prompts),
            HELD_OUT: examined(config, prompts),
        }
        return cls(prompts=every, chunk=config.prompts.chunk)

    def chunked(self, split: Split) -> Prompts:
        """Return a split's prompts in the chunks of a stage."""
        return chunked(self.prompts[split], self.chunk)

    @property
    def sets(self) -> Mapping[str, list[Prompt]]:
        """The prompts of each set of held-out ones, by its benchmark: one set without names."""
        found: dict[str, list[Prompt]] = {}
        for prompt in self.prompts[HELD_OUT]:
            found.setdefault(exam_benchmark(prompt.exam), []).append(prompt)
        return found or {HELD_OUT: []}


def examine_steps(it: Iteration, last: Checkpoint, exams: Exams) -> Checkpoint:
    """Evaluate the policies that a training published at its steps before the last; return M_t."""
    held_out = {name: chunked(prompts, exams.chunk) for name, prompts in exams.sets.items()}
    return chosen_policy(it, last, exams.chunked(DEV), held_out)


def examine(it: Iteration, course: Course, exams: Exams) -> Course:
    """Evaluate M_t, and return the updated course of the run."""
    decides = bool(exams.prompts[DEV])
    if decides:
        evaluate(it, exams.chunked(DEV), benchmark=DEV)
    for benchmark, prompts in exams.sets.items():
        evaluate(it, chunked(prompts, exams.chunk), benchmark=benchmark)
    probe(it)
    if it.number == course.first:
        return course
    watch(it, DEV if len(exams.prompts[DEV]) >= FEWEST else HELD_OUT)
    course = judged(it, course, exams.prompts[HELD_OUT], HELD_OUT)
    return judged(it, course, exams.prompts[DEV], DEV) if decides else course.having(it.parent)


def examined(config: RunConfig, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the held-out prompts that every policy of a run is evaluated on, set by set."""
    sets: dict[str, list[Prompt]] = {}
    for prompt in ordered(prompts, HELD_OUT, config.seed):
        sets.setdefault(prompt.exam or "", []).append(prompt)
    return [p for name in sorted(sets) for p in sets[name][: config.prompts.evaluated]]


def deciding(config: RunConfig, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return the dev prompts by which the policies of a run are compared during the run."""
    return ordered(prompts, DEV, config.seed)[: config.prompts.deciding]


def ordered(prompts: Sequence[Prompt], split: str, seed: int) -> list[Prompt]:
    """Return the prompts of a split in an order that depends on the seed and their ids alone."""
    chosen = [prompt for prompt in prompts if prompt.split == split]
    return sorted(chosen, key=lambda p: (derive_seed(seed, "order", p.prompt_id), p.prompt_id))
