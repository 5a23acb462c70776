"""PPO without and with a next-token loss (ChatGLM-RLHF, Section 3.4, Eq. 6).

The policy has abilities to lose: it is fine-tuned on people's answers to all tasks, and then
optimised on word problems alone, at five times the usual rate and without a KL penalty. The
next-token loss is on careful answers to some families of instructions, because the paper's
supervised set is also specific to particular tasks. No probe uses these families, so that the loss
teaches no probed ability; the probes measure whether it keeps them.
"""

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from statistics import fmean

import polars as pl
from alpacafarm_arms import SFT
from seed_lines import plotted

from lpfloop.loop.evaluation.plots import Intervals
from lpfloop.loop.lake.query.figures import NotMeasuredError
from lpfloop.loop.lake.query.forgetting import PASSED, PREFIX
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
from lpfloop.loop.tiny.exercises import add_opener
from lpfloop.loop.tiny.world import prompts
from lpfloop.stores.lake import RunReader

PLACE = "Section 3.4, Eq. 6"
WEIGHT = 0.5
"""The paper leaves it open; this is the tiny world's default."""
TASK = "math"
TAUGHT = ("alphabet", "count", "numbers", "reverse")
"""The families of D_S: all families without a probe."""
KEPT = 5.0
"""Points by which probes may fall and still count as kept."""
ALL = "all probes"
POINTS = "points"


def problems() -> Iterator[Mapping[str, str]]:
    """Return the prompts that PPO optimises the policy on: word problems."""
    for split in ("train", "held-out"):
        for prompt in prompts(split):
            if prompt.task == TASK:
                yield {
                    "prompt": prompt.text,
                    "task": prompt.task,
                    "split": split,
                    "reference": prompt.reference or "",
                }


def careful_answers() -> Iterator[Mapping[str, str]]:
    """Return prompts of unprobed families, with right answers."""
    for prompt in prompts("train"):
        if prompt.kind in TAUGHT:
            rng = Random(prompt.text)
            output = add_opener(prompt.exercise, prompt.exercise.careful(rng), rng)
            yield {"prompt": prompt.text, "task": prompt.task, "output": output}


def _arm(name: str, weight: float, fork: str = "") -> StudyArm:
    return StudyArm(
        name=name,
        recipe="ppo",
        settings=(
            "iterations=1",
            f"training.next_token.weight={weight:g}",
            "reward.model=tiny",
            "facts.judge=sentence_match",
            "assessment.reference=null",
            "assessment.oracle=null",
            "assessment.reward=false",
            "assessment.kl=false",
            "assessment.probes=tiny",
            "training.ppo.kl_coef=0",
            "training.ppo.learning_rate=1e-3",
        ),
        tiny=(
            "prompts.per_iteration=400",
            "prompts.parts={layout: used, unlabeled: 400}",
            "prompts.max_test=12",
            "prompts.max_dev=12",
            "training.ppo.max_steps=16",
            "training.next_token.batch_size=16",
        ),
        fork=fork,
        policy_of=SFT.name,
        files=(
            StudyFile(setting="prompts.source", name="problems", rows=problems),
            StudyFile(setting="training.next_token.source", name="careful", rows=careful_answers),
        ),
    )


OFF = _arm("next-token-without", 0)
ON = _arm("next-token-with", WEIGHT, fork=OFF.name)
ARMS = {"without": OFF, "with": ON}
Falls = Mapping[str, float]
"""The fall of each probe, in points."""


def find(evidence: Evidence) -> StudyFinding:
    """Compare the falls of probes without the loss and with it."""
    found = {label: evidence.by_seed(arm.name, falls) for label, arm in ARMS.items()}
    scores = {label: evidence.by_seed(arm.name, last_score) for label, arm in ARMS.items()}
    off, on = ([fall[ALL] for fall in seeds] for seeds in found.values())
    return StudyFinding(
        claims=[
            PaperClaim(
                says="without the loss probes fall",
                paper=PaperFigure(
                    place=PLACE, statement="wrong self-identification, invalid JSON; no figure"
                ),
                estimate=SeedEstimate.of(off, POINTS, signed=True),
                above=0,
            ),
            PaperClaim(
                says="with it they fall less",
                paper=PaperFigure(place=PLACE, statement="preserves abilities of the SFT model"),
                estimate=SeedEstimate.difference(on, off, POINTS),
                below=0,
            ),
            PaperClaim(
                says=f"with it they fall by less than {KEPT:g} points",
                paper=PaperFigure(place=PLACE, statement="preserves abilities of the SFT model"),
                estimate=SeedEstimate.of(on, POINTS, signed=True),
                below=KEPT,
            ),
        ],
        tables=[
            StudyTable(
                title="Falls of the probes, in points",
                columns=["probe", *found],
                rows=[
                    [probe, *(_fall(seeds, probe).cell() for seeds in found.values())]
                    for probe in found["with"][0]
                ],
            ),
            StudyTable(
                title="What the loss costs",
                columns=["figure", *scores],
                rows=[
                    [
                        "mean score of PPO's last step",
                        *(SeedEstimate.of(of, digits=2).cell() for of in scores.values()),
                    ]
                ],
            ),
        ],
        panels=[
            Intervals(
                estimates=[
                    plotted(f"{probe}, {label}", _fall(seeds, probe))
                    for label, seeds in found.items()
                    for probe in seeds[0]
                ],
                title="probes after PPO",
                x_label="fall, points",
                level=0.0,
            )
        ],
        notes=_notes(found, scores),
        commands=[
            f"lpfloop status {name}"
            for arm in ARMS.values()
            for name in evidence.names(arm.name)[:1]
        ],
    )


def falls(run: RunReader) -> Falls:
    """Return the fall of each probe from M_0 to M_1, in points, and of all of them together."""
    passed = run.scan("scores").filter(
        pl.col("benchmark").str.starts_with(PREFIX), pl.col("metric") == PASSED
    )
    return fallen(passed.select("iteration", "benchmark", "prompt_id", "value").collect())


def fallen(rows: pl.DataFrame) -> Falls:
    """Return the falls from rows with `iteration`, `benchmark`, `prompt_id` and `value`.

    Raises:
        NotMeasuredError: if no probe was measured twice.
    """
    before = rows.filter(pl.col("iteration") == 0)
    lost = (
        rows.filter(pl.col("iteration") == 1)
        .join(before, on=["benchmark", "prompt_id"], suffix="_before")
        .select(
            probe=pl.col("benchmark").str.strip_prefix(PREFIX),
            lost=100 * (pl.col("value_before") - pl.col("value")),
        )
    )
    if lost.is_empty():
        raise NotMeasuredError("no probe was measured before and after")
    by_probe = lost.group_by("probe").agg(pl.col("lost").mean()).sort("probe")
    return {ALL: fmean(lost["lost"].to_list()), **dict(by_probe.iter_rows())}


def last_score(run: RunReader) -> float:
    """Return the mean score of the rollouts of PPO's last step."""
    scores = run.scan("rewards").select("candidate_id", "score").unique("candidate_id")
    rows = run.scan("rollouts").join(scores, on="candidate_id")
    last = rows.filter(pl.col("step") == pl.col("step").max())
    return float(last.select(pl.col("score").mean()).collect().item())


def _fall(seeds: Sequence[Falls], probe: str) -> SeedEstimate:
    return SeedEstimate.of((fall[probe] for fall in seeds), signed=True)


def _notes(
    found: Mapping[str, Sequence[Falls]], scores: Mapping[str, Sequence[float]]
) -> list[str]:
    off = found["without"]
    probes = [probe for probe in off[0] if probe != ALL]
    most = max(probes, key=lambda probe: _fall(off, probe).value)
    cost = SeedEstimate.difference(scores["with"], scores["without"], digits=2)
    return [
        f"Without the loss `{most}` falls most, by {_fall(off, most).cell()} points.",
        (
            f"With it PPO's last step scores higher by {cost.cell()}: what is kept is paid for in "
            "reward if that is below 0."
        ),
    ]


STUDY = Study(
    name="chatglm-next-token",
    hypothesis=(
        "PPO on one task makes a policy forget others; a next-token loss on a few supervised "
        "answers, of kinds that no probe asks for, keeps what the probes measure."
    ),
    paper=chatglm_ppo.PAPER,
    built_in=(
        "The probes and the supervised answers are of one generator, and the supervised kinds "
        "share a form (an instruction, a short answer) with those that are probed; but no probed "
        "kind is taught."
    ),
    arms=(SFT, OFF, ON),
    find=find,
    tiny_only="its probes and its supervised answers are the tiny world's",
)
