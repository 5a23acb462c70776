"""The plan of a run is what the run then does; a dry run writes nothing."""

import json
import math
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from crashing import Silent, small_config, write_prompts
from typer.testing import CliRunner, Result

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon import doctor
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import required_prompts, run_loop, turn
from lpfloop.loop.daemon.opening import opened
from lpfloop.loop.daemon.plan import Plan, plan_of
from lpfloop.loop.daemon.plan_lines import WIDTH, plan_lines, short, short_lines
from lpfloop.loop.daemon.planning import costs_in, kept_plan, planned, tell_plan
from lpfloop.loop.daemon.progress import Progress, progress
from lpfloop.loop.daemon.rehearsal import rehearse
from lpfloop.loop.daemon.stand_ins import CallCost, Notes, StageNotes, StandInScorer, StandInTrainer
from lpfloop.loop.data.prompts import tiny_prompts
from lpfloop.loop.recipes import RECIPES
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import JOURNAL, Reader
from lpfloop.stores.lake import RunReader, run_folder
from lpfloop.stores.records import Prompt

TRAINED = ("train", "train_reward", "ppo", "quark")
SPLIT = ("annotate", "compare")
"""What several annotators share: who gets which pair is drawn by ids that a rehearsal has not."""
LUCK = 2.0
"""How many roots of the number of pairs their requests may be off the mean. To draw one pair anew
changes them by 1 at most, so that they are further off with a chance of 2 exp(-8), 7 in 10,000."""
QUICK = (
    "policy.engine={kind: scripted, script: 'scripts:policy'}",
    "critic.engine={kind: scripted, script: 'scripts:clear_critic'}",
    "training.min_pairs=1",
    "training.ppo.max_steps=3",
    "training.quark.max_steps=3",
    "assessment.probes=null",
    "training.next_token.weight=0",
    "prompts.chunk=5",
    "iterations=1",
)


def config_of(name: str, share: int, *more: str) -> RunConfig:
    few = share // 2
    limits = (
        f"prompts.per_iteration={share}",
        f"prompts.evaluated={few}",
        f"prompts.deciding={few}",
    )
    rewarded = ("reward.model=none",) if name == "rlrf" else ()
    return load_config("tiny", name, (*QUICK, *limits, *rewarded, *more), {})


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    """A share of the tiny world's prompts, of each task and of all splits."""
    return tiny_prompts()[::40]


def done(config: RunConfig, prompts: list[Prompt], lake: Path) -> list[Progress]:
    """What a run does whose engines are scripts, and whose trainer and reward model stand in."""
    stop = StopSignal()
    notes = Notes(costs={}, count_of=lambda _: pytest.fail("no engine stands in"))
    notes.stages.append(StageNotes(iteration=0, stage="", judge=False))
    with opened(Job(config=config, lake=lake, name="a"), prompts, Silent(), stop) as run:
        run.trainer = StandInTrainer(notes=notes)
        run.models.scorer = lambda _=None: StandInScorer(notes=notes)
        turn(run, prompts)
        return progress(run.store.journal, running=False)


def calls(plan: Plan, *, shared: bool) -> Counter[tuple[int, str]]:
    found = Counter[tuple[int, str]]()
    for stage in plan.stages:
        verb = stage.stage.partition(":")[0]
        if stage.stage not in TRAINED and (verb in SPLIT) == shared:
            found[stage.iteration, verb if shared else stage.stage] += stage.calls
    return +found


QUICKEST = ("rlrf", "dpo", "best-of-n", "ultrafeedback-ppo", "critique-model")
"""Recipes that between them call most verbs."""


@pytest.mark.parametrize(
    ("name", "share"), [*((name, 8) for name in QUICKEST), ("rlrf", 40), ("ultrafeedback-ppo", 40)]
)
def test_a_run_does_what_its_plan_says(
    tmp_path: Path, prompts: list[Prompt], name: str, share: int
) -> None:
    require_as_planned(tmp_path, prompts, name, share)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name not in QUICKEST])
def test_runs_of_all_other_recipes_do_what_their_plans_say(
    tmp_path: Path, prompts: list[Prompt], name: str
) -> None:
    require_as_planned(tmp_path, prompts, name, 8)


def require_as_planned(tmp_path: Path, prompts: list[Prompt], name: str, share: int) -> None:
    """Fail unless a run has the stages, units and requests of its plan."""
    config = config_of(name, share)
    plan = planned(config, prompts, tmp_path / "lake")
    made = done(config, prompts, tmp_path)
    assert plan.ends is None
    assert plan.exact == (share == 8)
    units = {(stage.iteration, stage.stage): stage.planned for stage in made}
    assert {(stage.iteration, stage.stage): stage.units for stage in plan.stages} == units
    asked = Counter[tuple[int, str]]()
    split = Counter[tuple[int, str]]()
    for stage in made:
        verb = stage.stage.partition(":")[0]
        first = stage.calls - stage.retries
        if verb in SPLIT:
            split[stage.iteration, verb] += first
        elif stage.stage not in TRAINED:
            asked[stage.iteration, stage.stage] += first
    assert calls(plan, shared=False) == +asked
    shared = calls(plan, shared=True)
    assert shared.keys() == (+split).keys()
    pairs = Counter[tuple[int, str]]()
    for stage in made:
        pairs[stage.iteration, stage.stage.partition(":")[0]] += stage.rows
    for place in shared:
        assert abs(shared[place] - split[place]) < LUCK * math.sqrt(pairs[place])


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def own(folder: Path, *more: object) -> list[object]:
    """The options of a run of one's own prompts, by scripts."""
    scripts = ("policy.engine.script=crashing:policy", "critic.engine.script=crashing:critic")
    kinds = ("policy.engine.kind=scripted", "critic.engine.kind=scripted")
    settings = [f"--set={text}" for text in (*scripts, *kinds, "prompts.held_out_share=0.25")]
    lake = ("--lake", folder / "lake")
    return ["--prompts", write_prompts(folder), *lake, *settings, *more]


def test_a_dry_run_says_what_would_be_asked_and_writes_nothing(tmp_path: Path) -> None:
    told = invoke("run", *own(tmp_path, "--dry-run"))
    assert told.exit_code == 0
    assert not (tmp_path / "lake").exists()
    assert all(len(line) <= WIDTH for line in told.stdout.splitlines())
    for said in ("plan: rlrf, 2 iterations", "critic", "critique:sample", "hours: not known"):
        assert said in told.stdout
    document = json.loads(invoke("run", *own(tmp_path, "--dry-run", "--json")).stdout)
    assert document["totals"]["calls"] == sum(stage["calls"] for stage in document["stages"])
    assert document["prompts"]["train"] == {"general": 4}
    assert document["prompts"]["dev"] == document["prompts"]["held-out"] == {"general": 2}


@pytest.mark.parametrize("damage", ["PRAGMA user_version = 1", None])
def test_another_run_that_cannot_be_read_is_in_nobodys_way(tmp_path: Path, damage: str | None):
    other = run_folder(tmp_path / "lake", "other")
    Journal.create(other, {"config": "{}"}).close()
    journal = other / JOURNAL
    if damage is None:
        journal.write_bytes(journal.read_bytes()[: journal.stat().st_size // 2])
    else:
        with closing(sqlite3.connect(journal)) as connection:
            connection.execute(damage)
    assert invoke("run", *own(tmp_path, "--dry-run")).exit_code == 0


def test_a_dry_run_refuses_what_the_run_would(tmp_path: Path) -> None:
    words = own(tmp_path)
    narrow = [
        "--variant=ppo",
        "--set=policy.sampling.top_p=0.5",
        "--set=annotation.pool=alpacafarm",
    ]
    narrow += [f"--set=annotation.{r}.engine.kind=scripted" for r in ("strong", "medium", "weak")]
    refused = invoke("run", *words, "--dry-run", *narrow)
    assert (refused.exit_code, refused.stdout) == (Exit.BAD_INPUT, "")
    assert "policy.sampling.top_p" in refused.stderr
    missing = invoke("run", *words, "--dry-run", "--set=policy.engine.kind=auto")
    assert (missing.exit_code, missing.stdout) == (Exit.BAD_INPUT, "")
    assert "--policy" in missing.stderr
    folder = invoke(
        "run", *words, "--dry-run", "--set=policy.engine.kind=auto", "--policy", tmp_path
    )
    assert folder.exit_code == Exit.BAD_INPUT
    assert "config.json is missing" in folder.stderr
    alone = invoke("run", *words, "--json")
    assert alone.exit_code == Exit.BAD_INPUT
    assert "--dry-run" in alone.stderr
    assert not (tmp_path / "lake").exists()


class Noted(Silent):
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.notes = list[str]()

    def note(self, text: str) -> None:
        self.notes.append(text)


def begun(config: RunConfig, lake: Path) -> list[str]:
    """What a run is told that begins, or goes on, and has no iteration to turn."""
    reporter = Noted()
    job = Job(config=config.model_copy(update={"iterations": 0}), lake=lake, name="a")
    run_loop(job, reporter, StopSignal(), on_begin=tell_plan)
    return reporter.notes


def test_a_run_begins_with_its_plan_keeps_it_and_goes_on_with_a_line(tmp_path: Path) -> None:
    config = small_config(write_prompts(tmp_path))
    first, second = begun(config, tmp_path), begun(config, tmp_path)
    assert first[0] == "plan: rlrf, 0 iterations, seed 0"
    assert len(first) <= 25
    assert [note for note in second if note.startswith("plan")] == second[:1]
    kept = kept_plan(Reader(tmp_path / "runs" / "a"))
    assert kept is not None
    assert short_lines(kept) == first[: len(short_lines(kept))]
    status = invoke("status", "a", "--lake", tmp_path)
    assert status.stdout.splitlines()[1] == first[0]
    assert json.loads(invoke("status", "a", "--lake", tmp_path, "--json").stdout)["plan"]["head"]


OWN_RECIPE = """
from lpfloop.configs.recipes import Recipe
from lpfloop.parts import critique, pair, reward, sample, train, JudgedRows

def judged(it, cfg: Recipe):
    drafts = sample(it, it.prompts(), n=3)
    rows = JudgedRows(candidates=drafts, critiques=critique(it, drafts), rewards=reward(it, drafts))
    return train(it, pair(it, rows, rule="success_vs_failure", top_k=1))

def broken(it, cfg: Recipe):
    sample(it, it.prompts(), n=1)
    raise ValueError("no such thing")
"""


def test_a_recipe_of_ones_own_is_planned_and_a_broken_one_told_in_a_sentence(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN_RECIPE)
    told = invoke("run", *own(tmp_path, "--dry-run", "--json", "--variant", f"{path}:judged"))
    stages = {(s["iteration"], s["stage"]): s for s in json.loads(told.stdout)["stages"]}
    assert stages[1, "sample"]["calls"] == stages[1, "critique:sample"]["judge_calls"] == 12
    broken = invoke("run", *own(tmp_path, "--dry-run", "--variant", f"{path}:broken"))
    assert broken.exit_code == Exit.BAD_INPUT
    assert "the run cannot be planned: ValueError: no such thing" in broken.stderr
    assert "Traceback" not in broken.stderr


def test_a_plan_that_cannot_be_made_keeps_nobody_from_running(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(OWN_RECIPE)
    words = own(tmp_path, "--variant", f"{path}:broken", "--iterations", 0)
    assert invoke("run", *words).exit_code == 0


def test_earlier_runs_tell_how_long_answers_are(tmp_path: Path) -> None:
    config = small_config(write_prompts(tmp_path))
    before = planned(config, required_prompts(config, tmp_path), tmp_path)
    assert not before.measured
    begun(config, tmp_path)
    after = planned(config, required_prompts(config, tmp_path), tmp_path)
    stage = next(s for s in after.stages if s.stage == "evaluate:held-out")
    assert stage.measured
    assert stage.tokens < stage.most_tokens
    assert stage.seconds is not None
    lines = plan_lines(after)
    assert any(line.startswith("  tokens: about") for line in lines)


def test_earlier_runs_tell_what_a_letter_takes(tmp_path: Path) -> None:
    """Both of the prompts, and of the answers that judges are then shown."""
    config = small_config(write_prompts(tmp_path))
    begun(config, tmp_path)
    cost = costs_in(tmp_path, config)["evaluate:held-out"]
    reader = RunReader(tmp_path / "runs" / "a")
    answers = reader.scan("candidates").collect()
    asked = [
        p for p in required_prompts(config, tmp_path) if p.prompt_id in {*answers["prompt_id"]}
    ]
    reader.close()
    letters = sum(len(m.content) for p in asked for m in p.messages)
    assert cost.letters == pytest.approx(answers["text"].str.len_chars().mean())
    assert cost.density == pytest.approx(answers["prompt_tokens"].sum() / letters)


def test_an_endpoint_is_planned_by_what_a_letter_took_of_it(tmp_path: Path) -> None:
    url = "critic.model=http://127.0.0.1:9/v1"
    config = small_config(write_prompts(tmp_path), url, "critic.engine.kind=openai")
    prompts = required_prompts(config, tmp_path)

    def tokens(density: float, letters: float) -> int:
        costs = {
            "critique": CallCost(tokens=10, letters=40, density=density),
            "sample": CallCost(tokens=10, letters=letters),
        }
        plan = plan_of(rehearse(config, prompts, costs), prompts, costs)
        return sum(s.prompt_tokens for s in plan.stages if s.stage == "critique:sample")

    assert tokens(1.0, 40) == pytest.approx(2 * tokens(0.5, 40), rel=0.01)
    assert tokens(1.0, 400) > tokens(1.0, 40)


def test_numbers_are_short() -> None:
    assert [short(n) for n in (0, 7, 999, 1000, 12_345, 123_456, 7_000_000)] == [
        "0",
        "7",
        "999",
        "1.00k",
        "12.3k",
        "123k",
        "7.00M",
    ]


TINY_POLICY = Path(doctor.__file__).parents[1] / "tiny" / "models" / "policy"


@pytest.mark.model
def test_a_preview_shows_templates_cuts_and_the_loss_mask(tmp_path: Path) -> None:
    words = own(tmp_path, "--set=policy.engine.kind=transformers", "--policy", TINY_POLICY)
    told = invoke("preview", *words, "--set=policy.engine.max_model_len=40", "--stage", "sample")
    assert told.exit_code == 0, told.stderr
    assert all(len(line) <= WIDTH for line in told.stdout.splitlines())
    assert "<|user|>Tell me about the number" in told.stdout
    assert "<|assistant|>" in told.stdout
    assert "it may be cut" in " ".join(told.stdout.split())
    row = invoke("preview", *words, "--set=training.dpo.max_length=48", "--stage", "train").stdout
    assert "chosen" in row
    assert "rejected" in row
    assert "<|assistant|>\u27e6" in row.replace("\n  | ", "")
    assert "<|end|>" in row
    assert "of them cut off" in row
    assert not (tmp_path / "lake").exists()


@pytest.mark.model
def test_a_preview_shows_a_template_that_takes_the_place_of_the_models_own(tmp_path: Path) -> None:
    named = ("--set=policy.engine.kind=transformers", "--set=policy.engine.template=alpaca")
    words = own(tmp_path, *named, "--policy", TINY_POLICY)
    told = invoke("preview", *words, "--stage", "sample")
    assert told.exit_code == 0, told.stderr
    assert "### Instruction:\n  | Tell me about the number" in told.stdout


def test_a_preview_shows_what_an_endpoint_is_sent_and_a_reply_that_is_read(tmp_path: Path) -> None:
    words = own(tmp_path)
    told = invoke("preview", *words, "--stage", "critique")
    assert told.exit_code == 0, told.stderr
    assert "a reply that would be read" in told.stdout
    assert "VERDICT-" in told.stdout
    wrong = invoke("preview", *words, "--stage", "critiques")
    assert wrong.exit_code == Exit.BAD_INPUT
    assert "--stage critiques: did you mean 'critique:" in wrong.stderr
    assert "this run has sample" in wrong.stderr


def test_each_policy_on_the_way_takes_its_exam_and_its_room(tmp_path: Path) -> None:
    more = ("prompts.dev_share=0.05", "training.ppo.max_steps=40")
    plans = {}
    for every in (0, 10):
        config = load_config("tiny", "ppo", (*more, f"training.ppo.publish_every={every}"), {})
        asked = required_prompts(config, tmp_path)
        plans[every] = plan_of(rehearse(config, asked), asked)
    plain, planned = plans.values()
    calls = {stage.stage: stage.calls for stage in planned.stages}
    steps = {label for label in calls if label.startswith("evaluate:step-")}
    assert steps == {f"evaluate:step-{step}:dev" for step in (10, 20, 30, 40)}
    assert {calls[label] for label in steps} == {calls["evaluate:dev"]}
    (publishing,) = [stage for stage in planned.stages if stage.stage == "train:steps"]
    assert publishing.units == 3
    one = plain.disk.models // 2  # a reward model, and the last policy
    assert planned.disk.models == plain.disk.models + 3 * one
    assert planned.disk.training == plain.disk.training + 3 * one
