# pyright: basic
"""One step of each training that a run needs, on a few of the smoke test's answers.

The rows are made from the answers, ignoring the judges' verdicts. The real trainer trains on them
in a separate work folder; nothing is published, and the folders are removed.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pyarrow as pa

from ...configs.load import semantic
from ...configs.recipes import Grouped
from ...configs.training import GroupTraining, OnlineSettings
from ...policies.trainers.job import ONLINE, TURNS, Method, Settings, TrainJob
from ...policies.trainers.launch import processes_of, training_gpus
from ...policies.trainers.step_files import read_answers, write_judged
from ...policies.trainers.train_model import TrainResult
from ...policies.trainers.training_fit import fit_params, policy_fit
from ...stores.durable import make_folder
from ...stores.frames import as_arrow, rows_frame
from ...stores.keys import Json, derive_seed
from ...stores.records import (
    Candidate,
    Demonstration,
    Pair,
    Prompt,
    Statistic,
    UnpairedAnswer,
)
from ...stores.schemas import to_table
from ...stores.side_evals import SMOKE
from ...stores.verified import write_rows
from ..data.training_rows import (
    Origin,
    add_empty_ratings,
    demonstration_rows,
    pair_rows,
    unpaired_rows,
)
from ..run.handles import Planned, Rows, chunk_prompts
from ..run.iteration import Iteration
from ..run.models import is_endpoint
from ..run.reporter import UnitStats
from ..run.run import Verb
from ..run.stage import Stage
from .online_rl import OnlineTraining
from .publish import Publishing, step_statistics, training_fit, turn_form
from .step_judges import StepJudges

STEP = Verb("smoke_step")
ROWS = 2
"""Rows of a step; more if more processes share it."""
Two = tuple[Candidate, Candidate]


def try_trainings(
    it: Iteration, answers: Rows[Candidate], methods: Sequence[Method], name: str
) -> bool:
    """Make one step by each method, unless that is done; return False if that is impossible.

    Raises:
        TrainingError: if one of them does not end.
    """
    twos = distinct_twos(it.chunk(answers, 0))
    if is_endpoint(it.policy.location) or not twos:
        return False
    stages = [_run_units(it, answers, twos, method, name) for method in methods]
    for planned in stages:
        shutil.rmtree(_work_folder(it, planned).parent, ignore_errors=True)
    return True


def _run_units(
    it: Iteration, answers: Rows[Candidate], twos: Sequence[Two], method: Method, name: str
) -> Planned:
    """Plan and run the step of one method."""
    params: Json = {
        "method": method,
        "policy": it.policy.params,
        "settings": semantic(_settings(it, method)),
        **fit_params(policy_fit(it.run.config)),
    }

    def run_units(stage: Stage) -> None:
        for unit in stage.units():
            it.run.models.make_room()
            result = _train(it, _job(it, method, twos, _work_folder(it, stage.planned)))
            statistics = step_statistics(it.number, method, result)
            stage.commit(unit, {Statistic: statistics}, UnitStats(rows=1))

    work, places = it.whole(STEP, params, answers), it.run.places.of_training("auto")
    return it.run.run_stage(it.number, f"step:{name}:{method}", work, run_units, places=places)


def _work_folder(it: Iteration, planned: Planned) -> Path:
    """Return the work folder of a step; files that trainings put next to it are removed with it."""
    return it.run.store.folder / "work" / planned.identity / "step"


def distinct_twos(candidates: Sequence[Candidate]) -> list[Two]:
    """Return two different answers for each prompt: its first, and any other text as its second."""
    written = [c for c in candidates if c.text.strip()]
    firsts = {c.prompt_id: c for c in reversed(written)}.values()
    others = [(c, [o.text for o in written if o.text != c.text][:1]) for c in firsts]
    return [(first, replace(first, text=text)) for first, texts in others for text in texts]


def _train(it: Iteration, job: TrainJob) -> TrainResult:
    """Train in the work folder; a training that ended there is not repeated.

    The samples of a step pass and fail alternately: their judges are tested separately.
    """
    online = job.online
    judges = () if online is None else online.reward_sources

    def judge(step: int) -> None:
        answers = enumerate(read_answers(job.output, step))
        judged = {answer.candidate_id: dict.fromkeys(judges, n % 2) for n, answer in answers}
        write_judged(job.output, step, judged)

    publishing = Publishing(run=it.run, on_answers=judge if judges else None)
    return it.run.store.when_there_is_room(lambda: publishing.train(job))


def _settings(it: Iteration, method: Method) -> Settings:
    """Return a method's settings for one step of as few rows as its processes can share."""
    settings: Settings = getattr(it.run.config.training, method)
    # KTO's answers are mismatched with others of their pass.
    together = ROWS if method == "kto" else 1
    rows = max(ROWS, together * _processes(it, method))
    one: dict[str, object] = {"batch_size": rows, "micro_batch_size": together, "epochs": 1.0}
    if isinstance(settings, OnlineSettings):
        one |= {"max_steps": 1, "inner_epochs": 1}
    if isinstance(settings, GroupTraining):
        one |= {"prompts_per_step": rows, "group": ROWS}
    elif isinstance(settings, OnlineSettings):
        one |= {"rollouts": rows, "reference_reward": False}
    return settings.model_copy(update=one)


def _processes(it: Iteration, method: Method) -> int:
    """Return the number of processes of a method's training in the run itself."""
    training = it.run.config.training
    return processes_of(training, getattr(training, method), len(training_gpus(training)))


def _job(it: Iteration, method: Method, twos: Sequence[Two], work: Path) -> TrainJob:
    """Return the training of a step."""
    if method in ONLINE:
        return _online(it, method, twos, work)
    run, settings = it.run, _settings(it, method)
    start = run.models.initial if method == "reward" else it.policy
    rows = _rows(method, [twos[n % len(twos)] for n in range(settings.batch_size)], it)
    data = run.store.when_there_is_room(lambda: write_rows(make_folder(work), rows))
    return TrainJob(
        method=method,
        model=Path(start.location),
        reference=None,
        data=(data,),
        output=work,
        settings=settings,
        seed=derive_seed(run.config.seed, "train", work.parent.name) % 2**32,
        processes=_processes(it, method),
        fit=training_fit(run, method),
        template=run.models.template,
        sees_end=run.config.reward.sees_end,
        bucket_width=run.config.pairs.bucket_width,
        turns=TURNS if method == "reward" else turn_form(run, it.policy),
    )


def _online(it: Iteration, method: Method, twos: Sequence[Two], work: Path) -> TrainJob:
    """Return the training of a step on sampled answers, against the run's reward model.

    If the run will train a reward model, the smoke test's step of that training is used.
    """
    prompts = [it.run.prompts[first.prompt_id] for first, _ in twos[:ROWS]]
    recipe = it.run.config.recipe
    judges = StepJudges(it=it, rewards=recipe.rewards) if isinstance(recipe, Grouped) else None
    chunks = chunk_prompts(prompts, ROWS)
    training = OnlineTraining(it=it, method=method, prompts=chunks, judges=judges)
    job = replace(training.job(work.parent.name), settings=_settings(it, method))
    if "reward" in training.weights and not it.has_reward:
        rewarding = _train(it, _job(it, "reward", twos, work / "reward"))
        job = replace(job, reward=rewarding.output)
    return job


def _rows(method: Method, twos: Sequence[Two], it: Iteration) -> pa.Table:
    """Return rows as a method trains on them."""
    first, second = (
        add_empty_ratings(rows_frame(Candidate, side)) for side in zip(*twos, strict=True)
    )
    prompts = rows_frame(Prompt, [it.run.prompts[i] for i in {c.prompt_id for c, _ in twos}])
    by = Origin(rule=SMOKE, iteration=it.number)
    if method == "sft":
        return to_table(Demonstration, as_arrow(demonstration_rows(first, prompts, by)))
    if method == "kto":
        sides = (first.with_columns(label=True), second.with_columns(label=False))
        either = pl.concat([sides[place % 2][[place]] for place in range(len(twos))])
        return to_table(UnpairedAnswer, as_arrow(unpaired_rows(either, prompts, by)))
    # One point apart: a training on score margins needs a difference.
    better, worse = first.with_columns(reward=pl.lit(1.0)), second.with_columns(reward=pl.lit(0.0))
    return to_table(Pair, as_arrow(pair_rows(better, worse, prompts, by)))
