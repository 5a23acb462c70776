"""Bucket-based length balancing, off and on (ChatGLM-RLHF, Section 3.3)."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

import polars as pl
from held_out_pairs import (
    AnswerPair,
    agreement,
    bias_by_difference,
    equally_long,
    held_out_pairs,
    length_bias,
)
from seed_lines import seed_line
from talkative import talkative_rows

from lpfloop.loop.evaluation.plots import Lines
from lpfloop.loop.recipes import chatglm_ppo
from lpfloop.loop.studies.claims import PaperClaim, PaperFigure, SeedEstimate
from lpfloop.loop.studies.study import (
    Evidence,
    Study,
    StudyArm,
    StudyFile,
    StudyFinding,
    StudyTable,
)
from lpfloop.policies.trainers.length_bias import LengthBucket
from lpfloop.stores.lake import RunReader

PLACE = "Section 3.3"
WIDTH = 6
"""Width of a bucket in tokens: about one claim."""
NEUTRAL = 1
"""The largest difference in tokens of a length-neutral pair."""
LEFT = 0.1
"""A correlation of reward with length that counts as none."""
COST = 3.0
"""Points of agreement with people on length-neutral pairs that balancing may cost."""
FEWER = 260
"""Number of prompts whose unbalanced pairs are about as many as all balanced ones."""
PEOPLE = StudyFile(setting="prompts.source", name="talkative", rows=talkative_rows)
UNJUDGED = (
    "facts.judge=none",
    "assessment.reference=null",
    "assessment.reward=false",
    "assessment.kl=false",
    "assessment.oracle=null",
)
"""These studies look at the reward model, and need no assessment of the policy."""

ANNOTATORS = tuple(f"annotation.{role}.model=tiny" for role in ("strong", "medium", "weak"))
"""The tiny world's annotators, by name: a run on a file does not choose them by default."""

TALKER = StudyArm(
    name="talkative-sft",
    recipe="sft",
    settings=("iterations=1", "policy.model=tiny", *UNJUDGED),
    tiny=(
        "prompts.per_iteration=700",
        "prompts.parts={layout: used, sft: 700}",
        "prompts.max_test=12",
        "prompts.max_dev=12",
    ),
    files=(PEOPLE,),
)


def _arm(name: str, *settings: str, prompts: int = 420, fork: str = "") -> StudyArm:
    return StudyArm(
        name=name,
        recipe="best-of-n",
        settings=(
            "iterations=1",
            "recipe.n=4",
            "recipe.most=8",
            "annotation.flip_probability=0",
            "annotation.comparisons=all",
            *ANNOTATORS,
            *UNJUDGED,
            *settings,
        ),
        tiny=(
            f"prompts.per_iteration={prompts}",
            f"prompts.parts={{layout: used, preference: {prompts}}}",
            "prompts.max_test=150",
            "prompts.max_dev=12",
            "training.reward.epochs=1",
            "training.reward.batch_size=24",
            "training.reward.micro_batch_size=24",
            f"pairs.bucket_width={WIDTH}",
        ),
        fork=fork,
        policy_of=TALKER.name,
        files=(PEOPLE,),
    )


OFF = _arm("length-unbalanced", "pairs.balance_length=false")
ON = _arm("length-balanced", "pairs.balance_length=true", fork=OFF.name)
CONTROL = _arm(
    "length-unbalanced-fewer", "pairs.balance_length=false", prompts=FEWER, fork=OFF.name
)
ARMS = {"unbalanced": OFF, "balanced": ON, "unbalanced, fewer pairs": CONTROL}
Found = Mapping[str, Sequence[Sequence[AnswerPair]]]


def find(evidence: Evidence) -> StudyFinding:
    """Compare reward models of all pairs, of balanced ones, and of equally few unbalanced ones."""
    found = {label: evidence.by_seed(arm.name, held_out_pairs) for label, arm in ARMS.items()}
    off, on, control = found
    bias = {label: [length_bias(pairs) for pairs in seeds] for label, seeds in found.items()}
    fair = {
        label: [agreement(equally_long(pairs, NEUTRAL)) for pairs in seeds]
        for label, seeds in found.items()
    }
    return StudyFinding(
        claims=[
            PaperClaim(
                says="balancing lowers the correlation of reward with length",
                paper=PaperFigure(place=PLACE, statement="alleviates the length bias; no figure"),
                estimate=SeedEstimate.difference(bias[on], bias[off], digits=2),
                below=0,
            ),
            PaperClaim(
                says=f"what is left of it is within {LEFT:g} of none",
                paper=PaperFigure(place=PLACE, statement="each bucket balanced; no figure"),
                estimate=SeedEstimate.of(bias[on], digits=2, signed=True),
                above=-LEFT,
                below=LEFT,
            ),
            PaperClaim(
                says=(
                    f"on equally long answers it costs less than {COST:g} points of agreement with "
                    "people, against as many unbalanced pairs"
                ),
                paper=PaperFigure(place=PLACE, statement="so that quality counts; no figure"),
                estimate=SeedEstimate.difference(fair[on], fair[control], "points"),
                above=-COST,
            ),
        ],
        tables=[_by_bucket(found), _agreements(found, fair)],
        panels=[_panel(found)],
        notes=_notes(evidence, found),
        commands=[f"lpfloop status {name}" for name in evidence.names(ON.name)[:1]],
    )


def _correlations(seeds: Sequence[Sequence[AnswerPair]]) -> Mapping[LengthBucket, SeedEstimate]:
    """Return the correlation in each bucket that all seeds have."""
    found = [bias_by_difference(pairs, WIDTH) for pairs in seeds]
    shared = sorted(set[LengthBucket].intersection(*(set(of) for of in found)))
    return {
        bucket: SeedEstimate.of((of[bucket] for of in found), digits=2, signed=True)
        for bucket in shared
    }


def _by_bucket(found: Found) -> StudyTable:
    columns = {label: _correlations(seeds) for label, seeds in found.items()}
    shared = sorted(set[LengthBucket].intersection(*(set(of) for of in columns.values())))
    return StudyTable(
        title="Correlation of reward with length, by difference in tokens",
        columns=["difference", *columns],
        rows=[[str(b), *(column[b].cell() for column in columns.values())] for b in shared],
    )


def _agreements(found: Found, fair: Mapping[str, Sequence[float]]) -> StudyTable:
    every = [SeedEstimate.of(map(agreement, seeds)).cell() for seeds in found.values()]
    equal = [SeedEstimate.of(fair[label]).cell() for label in found]
    return StudyTable(
        title="Agreement with people on held-out pairs, in %",
        columns=["pairs", *found],
        rows=[[f"within {NEUTRAL} token", *equal], ["all", *every]],
    )


def _panel(found: Found) -> Lines:
    curves = {
        label: [
            {(b.least + b.most) / 2: value for b, value in bias_by_difference(pairs, WIDTH).items()}
            for pairs in seeds
        ]
        for label, seeds in found.items()
    }
    return Lines(
        series=[seed_line(label, seeds) for label, seeds in curves.items()],
        title="length balancing",
        x_label="difference of lengths, tokens",
        y_label="correlation of reward with length",
        level=0.0,
    )


def _trained_on(run: RunReader, rule: str) -> int:
    pairs = run.scan("pairs").filter(pl.col("rule").str.ends_with("/balanced") == bool(rule))
    return pairs.select(pl.len()).collect().item()


def _notes(evidence: Evidence, found: Found) -> list[str]:
    counts = {
        "unbalanced": evidence.by_seed(OFF.name, partial(_trained_on, rule="")),
        "balanced": evidence.by_seed(ON.name, partial(_trained_on, rule="balanced")),
        "fewer unbalanced": evidence.by_seed(CONTROL.name, partial(_trained_on, rule="")),
    }
    told = ", ".join(f"{fmean(of):.0f} {label}" for label, of in counts.items())
    longer = [
        100 * fmean(pair.better > 0 for pair in pairs if pair.difference > NEUTRAL)
        for pairs in found["unbalanced"]
    ]
    return [
        f"Pairs that the reward models learned from: {told}.",
        (
            "People like the longer of two answers more in "
            f"{SeedEstimate.of(longer, '%').cell()} of pairs that differ in length, so that some "
            "of the correlation is worth having: what agreement falls by on all pairs is that and "
            "the pairs that balancing drops."
        ),
    ]


STUDY = Study(
    name="chatglm-length",
    hypothesis=(
        "Where annotators like length as such, balancing the pairs within buckets of equal "
        "difference in length keeps the reward model from scoring by length, at no cost where "
        "length says nothing."
    ),
    paper=chatglm_ppo.PAPER,
    built_in=(
        "The scripted annotators like length by a fixed weight, and the policy is trained on "
        "biographies of one to five claims, so that there is a bias to remove; people's taste for "
        "them is a script, too. How much of the bias balancing removes, and at what cost, is not "
        "built in."
    ),
    arms=(TALKER, OFF, ON, CONTROL),
    find=find,
    tiny_only="its prompts are biographies that only the tiny world's people can judge",
)
