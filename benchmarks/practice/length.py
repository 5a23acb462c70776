"""Bucket-based length balancing, off and on (ChatGLM-RLHF, Section 3.3)."""

from collections.abc import Mapping, Sequence

from lpfloop.loop.evaluation.panels import Lines, Series
from lpfloop.policies.trainers.length_bias import LengthBucket

from .arms import DIFFERENCE, Arms, Mean, Options, Report, Table, compared
from .held_out import NEUTRAL, Two, accuracy, answers, correlations, neutral, pairs
from .talkative import talkative

WIDTH = 6
"""Width of a bucket in tokens: about one claim."""
CLAIM = (
    "Length balancing brings the reward model's length correlation to within 0.05 of zero per "
    "bucket, while accuracy on length-neutral pairs does not fall."
)
SHARED = (
    "recipe.n=4",
    "recipe.most=8",
    "prompts.parts={sft: 0, preference: 1000, unlabeled: 0}",
    "prompts.evaluated=220",
    "annotation.flip_probability=0",
    "annotation.comparisons=all",
    "assessment.reference=null",
    "assessment.reward=false",
    "assessment.kl=false",
    "training.reward.epochs=1",
    "training.reward.batch_size=16",
    "training.reward.micro_batch_size=16",
    f"pairs.bucket_width={WIDTH}",
)
OFF, ON = "unbalanced", "balanced"


def study(options: Options) -> Report:
    """Train reward models on all pairs and on balanced ones; compare both on held-out pairs."""
    shared = (*talkative(options), *SHARED)
    arms = {OFF: ("pairs.balance_length=false",), ON: ("pairs.balance_length=true",)}
    made = Arms(study="length", variant="best-of-n", shared=shared, arms=arms)
    made.make(options)
    found = {arm: [pairs(answers(run)) for run in made.opened(options, arm)] for arm in arms}
    return Report(
        claim=CLAIM,
        tables=[_correlations(found), _accuracies(found)],
        panels=[_panel(found)],
    )


def _by_bucket(seeds: Sequence[Sequence[Two]]) -> Mapping[LengthBucket, Mean]:
    """Return the correlation in each bucket that all seeds have."""
    found = [correlations(two, WIDTH) for two in seeds]
    shared = sorted(set[LengthBucket].intersection(*(set(of) for of in found)))
    return {bucket: Mean.of(of[bucket] for of in found) for bucket in shared}


def _correlations(found: Mapping[str, Sequence[Sequence[Two]]]) -> Table:
    columns = {arm: _by_bucket(seeds) for arm, seeds in found.items()}
    rows = [
        [f"{bucket} tokens", *(column[bucket].shown() for column in columns.values())]
        for bucket in columns[OFF]
    ]
    return Table(titles=["correlation with length, by difference", *columns], rows=rows)


def _accuracies(found: Mapping[str, Sequence[Sequence[Two]]]) -> Table:
    rows = [
        compared(title, [[accuracy(kept(two)) for two in seeds] for seeds in found.values()])
        for title, kept in ((f"pairs within {NEUTRAL} token", neutral), ("all pairs", list))
    ]
    return Table(titles=["agreement with people", *found, DIFFERENCE], rows=rows)


def _panel(found: Mapping[str, Sequence[Sequence[Two]]]) -> Lines:
    series = list[Series]()
    for arm, seeds in found.items():
        means = _by_bucket(seeds)
        series.append(
            Series(
                label=arm,
                x=[(bucket.least + bucket.most) / 2 for bucket in means],
                y=[mean.value for mean in means.values()],
                low=[mean.value - mean.error for mean in means.values()],
                high=[mean.value + mean.error for mean in means.values()],
            )
        )
    return Lines(
        series=series,
        title="length balancing",
        x_label="difference of lengths, tokens",
        y_label="correlation of reward with length",
        level=0.0,
    )
