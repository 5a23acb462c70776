"""PPO without and with a next-token loss on people's answers (ChatGLM-RLHF, Section 3.4, Eq. 6).

The policy has something to lose: it starts as M_0 fine-tuned on people's answers to all tasks, and
is then optimised on word problems alone, at five times the usual rate, for what annotators like
there. The reward model has seen nothing else. The next-token loss is on careful answers to some
families of instructions, because the paper's supervised set is also specific to particular tasks.
No probe asks for these families, and no probed one is among them: what the probes measure is kept,
if it is, without being taught.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from pathlib import Path
from random import Random
from statistics import fmean, stdev

import polars as pl

from lpfloop.loop.evaluation.panels import Intervals, PlottedValue
from lpfloop.loop.lake.query.forgetting import PASSED, PREFIX
from lpfloop.loop.library.read_only_run import ReadOnlyRun
from lpfloop.loop.tiny.nouns import opened
from lpfloop.loop.tiny.world import prompts

from .arms import DIFFERENCE, Arms, Options, Report, Table, compared

WEIGHT = 0.5
ALL = "all probes"
CLAIM = (
    "Probes fall by less than one standard error with the next-token loss, and by more than two "
    "without it."
)
SHARED = (
    "prompts.per_iteration=1000",
    "prompts.parts={sft: 0, preference: 500, unlabeled: 500}",
    "annotation.flip_probability=0",
    "prompts.evaluated=60",
    "assessment.reference=null",
    "assessment.reward=false",
    "assessment.kl=false",
    "assessment.probes=tiny",
    "training.ppo.kl_coef=0",
    "training.ppo.max_steps=30",
    "training.ppo.learning_rate=1e-3",
    "training.next_token.batch_size=16",
)
TINY_JUDGES = (
    "facts.judge=sentence_match",
    *(f"annotation.{role}.model=tiny" for role in ("strong", "medium", "weak")),
)
"""The tiny world's, whose prompts these are: a run on a file takes them only by name."""
SUPERVISED = (
    "prompts.parts={sft: 3000, preference: 0}",
    "prompts.per_iteration=3000",
    "prompts.evaluated=60",
    "assessment.reference=null",
    "assessment.kl=false",
)
TASK = "math"
TAUGHT = ("alphabet", "count", "numbers", "reverse")
"""The families of D_S: all that no probe asks for."""
OFF, ON = "without", "with"

Lost = Mapping[str, Sequence[float]]
"""By probe, the loss of each of its prompts: 1, 0 or -1."""


def study(options: Options) -> Report:
    """Optimise for the same reward model from the same M_0 both ways; probe before and after."""
    arms = {OFF: ("training.next_token.weight=0",), ON: (f"training.next_token.weight={WEIGHT}",)}
    made = Arms(
        study="next-token",
        variant="ppo",
        shared=(*_begun(options), *TINY_JUDGES, *SHARED),
        arms=arms,
    )
    made.make(options)
    found = {arm: _together([_lost(run) for run in made.opened(options, arm)]) for arm in arms}
    rows = [
        [probe] + [cell for arm in arms for cell in _cells(found[arm][probe])]
        for probe in found[OFF]
    ]
    titles = [f"{arm}: {what}" for arm in arms for what in ("fall, points", "standard errors")]
    scores = [[_scored(run) for run in made.opened(options, arm)] for arm in arms]
    reward = Table(
        titles=["PPO", *arms, DIFFERENCE], rows=[compared("mean score of the last step", scores)]
    )
    return Report(
        claim=CLAIM,
        tables=[Table(titles=[f"next-token loss, weight {WEIGHT}", *titles], rows=rows), reward],
        panels=[_panel(found)],
    )


def _begun(options: Options) -> tuple[str, ...]:
    """Make the policy unless it exists; return the settings that make runs start from it."""
    first = Options(lake=options.lake, seeds=options.seeds[:1], settings=options.settings)
    made = Arms(study="supervised", variant="sft", shared=SUPERVISED, arms={"policy": ()})
    made.make(first)
    problems = options.lake / "problems.jsonl"
    _write(problems, _problems())
    supervised = options.lake / "supervised.jsonl"
    _write(supervised, list(_careful_answers()))
    return (
        f"policy.model={made.checkpoint(first, 'policy')}",
        f"prompts.source={problems.resolve()}",
        f"training.next_token.source={supervised.resolve()}",
    )


def _problems() -> list[Mapping[str, str]]:
    """Return the prompts that the policy is optimised on: word problems."""
    return [
        {"prompt": p.text, "task": p.task, "split": split}
        for split in ("train", "held-out")
        for p in prompts(split)
        if p.task == TASK
    ]


def _careful_answers() -> Iterator[Mapping[str, str]]:
    """Give prompts of families that are not probed, with right answers."""
    for p in prompts("train"):
        if p.kind in TAUGHT:
            rng = Random(p.text)
            output = opened(p.exercise, p.exercise.careful(rng), rng)
            yield {"prompt": p.text, "task": p.task, "output": output}


def _write(file: Path, rows: Sequence[Mapping[str, str]]) -> None:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _scored(run: ReadOnlyRun) -> float:
    """Return the mean score of the rollouts of PPO's last step."""
    rows = run.rollouts().join(run.rewards().select("candidate_id", "score"), on="candidate_id")
    steps = rows.group_by("step").agg(pl.col("score").mean()).sort("step").collect()
    return steps["score"][-1]


def _lost(run: ReadOnlyRun) -> dict[str, list[float]]:
    """Return, prompt by prompt, what M_1 lost of what M_0 passed."""
    passed = run.scores().filter(
        pl.col("benchmark").str.starts_with(PREFIX), pl.col("metric") == PASSED
    )
    before = passed.filter(pl.col("iteration") == 0)
    rows = (
        passed.filter(pl.col("iteration") == 1)
        .join(before, on=["benchmark", "prompt_id"], suffix="_before")
        .select(
            probe=pl.col("benchmark").str.strip_prefix(PREFIX),
            lost=pl.col("value_before") - pl.col("value"),
        )
        .sort("probe")
        .collect()
    )
    found: dict[str, list[float]] = {ALL: rows["lost"].to_list()}
    for probe, lost in rows.iter_rows():
        found.setdefault(probe, []).append(lost)
    return found


def _together(seeds: Sequence[Lost]) -> Lost:
    """Return the loss of each prompt, averaged over seeds, which probe the same prompts."""
    return {
        probe: [fmean(of) for of in zip(*(seed[probe] for seed in seeds), strict=True)]
        for probe in seeds[0]
    }


def _fall(lost: Sequence[float]) -> tuple[float, float]:
    """Return the mean fall and its standard error over prompts, in points."""
    return 100 * fmean(lost), 100 * stdev(lost) / sqrt(len(lost))


def _cells(lost: Sequence[float]) -> tuple[str, str]:
    fall, error = _fall(lost)
    return f"{fall:+.1f} ± {error:.1f}", f"{fall / error:+.1f}" if error else "0"


def _panel(found: Mapping[str, Lost]) -> Intervals:
    estimates = list[PlottedValue]()
    for arm, lost in found.items():
        for probe, values in lost.items():
            fall, error = _fall(values)
            label = f"{probe}, {arm} next-token loss"
            estimates.append(
                PlottedValue(label=label, value=fall, low=fall - error, high=fall + error)
            )
    return Intervals(
        estimates=estimates,
        title="probes after PPO",
        x_label="fall, points (± standard error)",
        level=0.0,
    )
