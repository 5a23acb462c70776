"""Every field of the configuration, changed under a run that exists: refused by name, or no matter.

A semantic field can change a row, so the run is refused and may be forked; all others go on and
change nothing.
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from crashing import RUN, SMALL, Whole, loop, quick_folder, stand_ins, whole, write_prompts

from lpfloop.configs.describe import ConfigField, fields
from lpfloop.configs.load import Override, load_config, stored_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.configs.variants import settings_of
from lpfloop.loop.daemon.control import resolved_at
from lpfloop.policies.trainers.trainer_job import GROUPED
from lpfloop.stores.journal import Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.keys import canonical_json
from lpfloop.stores.lake import run_folder

ROOT = Path(__file__).parent.parent.parent
VARIANT = "rlrf"
USELESS = (
    "annotation.source",
    "assessment.difficulty",
    "completion.pool",
    "completion.principles",
    "prompts.variance.margin",
)
"""Settings that would change nothing of this run, and are refused for that, in any run like it."""
NOT_HERE = tuple(
    f"{role}.engine.{name}"
    for role in ("policy", "critic")
    for name in ("template", "extra_body", "reasoning_effort")
)
"""Settings of models that run here, or of endpoints: scripted ones are neither."""
BY_FILES = ("policy.engine.batch", "critic.engine.batch")
"""Cosmetic settings of endpoints, which are refused by name elsewhere."""
ON_GPUS = ("training.lora.quantise", "training.optimizer")
"""Settings whose other values need a GPU: they are refused by name before anything is compared."""
TRAINED_ON_GPUS = ("training.devices", "training.sharding")
"""Cosmetic settings whose other values need a GPU, so that here they are refused by name."""
OVER_NODES = {
    "training.launcher": ("training.launcher=srun",),
    "training.nodes": ("training.nodes=2", "training.launcher=srun", "training.processes=auto"),
}
"""Cosmetic settings that reach other machines: here there are none, and they are refused."""
RECIPE = frozenset(f"recipe.{name}" for name in settings_of(VARIANT))
ALL = {field.path: field for field in fields()}
FIELDS = {p: f for p, f in ALL.items() if not p.startswith("recipe.") or p in RECIPE}
ROLES = ("strong", "medium", "weak")
JUDGE = ("model=tiny", "engine.kind=scripted")
"""Judges are named, so that a reference can be; nobody asks them."""
ANSWERS = "training.next_token.source=tiny"
"""What people answered is named, so that it can be learned; nobody learns it."""
BESIDE = {
    "training.dpo.loss": ("training.dpo.chosen_penalty=0",),
    "training.reward.template": ("training.reward.model=tiny",),
    "assessment.scores": (
        *(f"assessment.judge.{setting}" for setting in JUDGE),
        "assessment.judge.engine.script=answer_judges:fair",
    ),
    **{
        f"training.{method}.{name}": (f"training.{method}.publish_every=2",)
        for method in ("ppo", "quark", *GROUPED)
        for name in ("choose", "held_out_each")
    },
    "training.dpo.label_smoothing": ("training.dpo.loss=robust", "training.dpo.chosen_penalty=0"),
    "workers.tls_certificate": ("workers.tls_key=key.pem",),
    "workers.tls_key": ("workers.tls_certificate=certificate.pem",),
}
"""What must change with a field, since it goes with nothing else."""
GUESSES = (True, False, 17, 0.5, "float32", "general", "off")
"""Values to try on a field, until the schema accepts one that it does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A run of one iteration, what it holds, and values for the fields that need one that fits."""

    lake: Path
    whole: Whole
    kept: object
    chosen: dict[str, Any]
    overrides: tuple[str, ...]

    def config(self, *more: str | Override) -> RunConfig:
        return load_config("tiny", VARIANT, (*self.overrides, *more), {})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    place = tmp_path_factory.getbasetemp()
    with quick_folder(place) as folder, quick_folder(place) as other, stand_ins(folder):
        judges = (f"annotation.{role}.{what}" for role in ROLES for what in JUDGE)
        named = (f"prompts.source={write_prompts(folder)}", ANSWERS, "iterations=1")
        overrides = (*SMALL, *judges, *named)
        config = load_config("tiny", VARIANT, overrides, {})
        loop(folder, config=config)
        yield Made(
            lake=folder,
            whole=whole(folder),
            kept=kept(folder),
            chosen=fitting(other),
            overrides=overrides,
        )


SAMPLINGS = (
    *("policy.sampling", "critic.sampling", "grading.sampling", "prompts.quality.sampling"),
    "assessment.judge.sampling",
    "evaluation",
)
NEUTRAL_OF_ENGINES = {
    "chat_template_kwargs": {"enable_thinking": False},
    "think_tags": ["<a>", "</a>"],
    "extra_body": {"service_tier": "flex"},
    "reasoning_effort": "low",
    "json_schema": "auto",
    "vllm.quantization": "fp8",
    "vllm.kv_cache_dtype": "fp8",
}

NEUTRAL_OF_GROUPS = {
    "choose": "best",
    "scheduler": "linear",
    "schedule_by": "step",
    "missing_eos": "subtract",
}


def kept(lake: Path) -> object:
    """Return what the journal holds of stages and parts, and the size of each part's file."""
    folder = run_folder(lake, RUN)
    reader = Reader(folder)
    held = [(s.iteration, s.stage, s.planned, s.done) for s in reader.stages()], reader.parts()
    reader.close()
    return held, {path: path.stat().st_size for path in folder.rglob("*.parquet")}


def fitting(folder: Path) -> dict[str, Any]:
    """Return changed values of the fields that name something that must exist, or be whole."""
    more, held_out, dev = folder / "more", folder / "held-out", folder / "dev"
    for place in (more, held_out, dev):
        place.mkdir()
    write_prompts(more, count=9)
    (held_out / "prompts.jsonl").write_text('{"prompt": "Tell me about yourself."}\n')
    (dev / "prompts.jsonl").write_text('{"prompt": "Tell me about somebody else."}\n')
    templates, aspects = folder / "templates", folder / "aspects.yaml"
    shutil.copytree(ROOT / "critics" / "templates" / "paper", templates)
    fact_templates = folder / "fact-templates"
    shutil.copytree(ROOT / "critics" / "facts" / "templates" / "factscore", fact_templates)
    shutil.copy(ROOT / "critics" / "rubrics" / "paper.yaml", aspects)
    tiny = ROOT / "loop" / "tiny" / "models"
    engines = [f"annotation.{role}.engine" for role in ROLES]
    engines += ["prompts.quality.engine", "grading.engine", "assessment.judge.engine"]
    outputs = folder / "outputs.jsonl"
    asked = [json.loads(row)["prompt"] for row in write_prompts(folder).read_text().splitlines()]
    rows = [{"instruction": text, "output": "A number.", "generator": "other"} for text in asked]
    outputs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hard = folder / "difficulty.jsonl"
    told = [{"instruction": text, "difficulty": n} for n, text in enumerate(asked)]
    hard.write_text("".join(json.dumps(row) + "\n" for row in told))
    return {
        "iterations": 0,
        "memory": "warn",
        "prompts.source": str(more / "prompts.jsonl"),
        "prompts.held_out": str(held_out / "prompts.jsonl"),
        "prompts.dev": str(dev / "prompts.jsonl"),
        "prompts.turns": "first",
        "prompts.input": "headed",
        "prompts.fields": {"prompt": "prompt"},
        "prompts.rules.scripts": ["latin"],
        "prompts.rules.benchmarks": [str(held_out / "prompts.jsonl")],
        "prompts.quality.judge": "model",
        "prompts.quality.model": "tiny",
        "prompts.quality.intentions": "general",
        "policy.model": str(tiny / "policy"),
        "critic.model": str(tiny / "policy"),
        "reward.model": "tiny",
        "training.processes": "auto",
        "policy.engine.kind": "transformers",
        "critic.engine.kind": "transformers",
        "policy.engine.script": "scripts:policy",
        "critic.engine.script": "scripts:critic",
        "policy.engine.base_urls": ["http://127.0.0.1:9/v1"],
        "critic.engine.base_urls": ["http://127.0.0.1:9/v1"],
        "critic.templates": str(templates),
        "grading.score_form": "result",
        "grading.equal_answers": "once",
        "grading.cut_answers": "unscored",
        "critic.equal_answers": "once",
        "critic.aspects": str(aspects),
        "prices.table": "example",
        "prices.models": {"judge": {"prompt": 1.0, "completion": 2.0}},
        "critic.task_aspects": {"math": "Factuality"},
        "critic.kind": "verifier",
        "critic.agreement": "mean",
        "pairs.people": "ignored",
        "verdict.on_regression": "continue",
        "alarms.on_alarm": "continue",
        "completion.pool": "tiny",
        "completion.principles": "none",
        "grading.model": "tiny",
        "assessment.judge.model": "tiny",
        "assessment.scores": ["just-eval"],
        "grading.templates": "tiny",
        "facts.judge": "none",
        "facts.nli.model": "nli",
        "facts.nli.dtype": "bfloat16",
        "facts.nli.devices": (0,),
        "facts.templates": str(fact_templates),
        "training.reference": "initial",
        "training.dpo.scheduler": "constant",
        "training.dpo.loss": "ipo",
        "training.ppo.choose": "best",
        "training.quark.choose": "best",
        "training.dpo.label_smoothing": 0.1,
        "training.sft.scheduler": "constant",
        "training.distil.divergence": "jsd",
        "training.distil.scheduler": "constant",
        "training.kto.scheduler": "constant",
        "training.kto.loss": "apo_zero_unpaired",
        "training.reward.scheduler": "constant",
        "training.reward.model": str(tiny / "policy"),
        "training.reward.template": "alpaca",
        "training.ppo.kl_estimator": "k3",
        "training.ppo.whiten_rewards": "scale",
        "training.ppo.whiten_rewards_over": "batch",
        "training.ppo.whiten_advantages": "group",
        "training.ppo.missing_eos": "subtract",
        "training.ppo.scheduler": "constant",
        "training.ppo.schedule_by": "step",
        "training.quark.scheduler": "constant",
        "training.quark.quantiles_over": "group",
        "training.quark.missing_eos": "none",
        "annotation.cut_answers": "compared",
        "training.quark.schedule_by": "step",
        **{
            f"training.{method}.{name}": value
            for method in GROUPED
            for name, value in NEUTRAL_OF_GROUPS.items()
        },
        "training.grpo.scale": "none",
        "training.grpo.loss": "token",
        "training.lora.quantise": "nf4",
        "training.weights": "bfloat16",
        "training.optimizer": "adamw_8bit",
        "training.recompute": "always",
        "training.attention": "sdpa",
        "training.next_token.source": str(more / "prompts.jsonl"),
        "training.quark.train_on": "all",
        "training.quark.pool": "growing",
        "training.thought": "own",
        **{f"{part}.stop": ["END"] for part in SAMPLINGS},
        **{
            f"{engine}.{name}": value
            for engine in (*engines, "policy.engine", "critic.engine")
            for name, value in NEUTRAL_OF_ENGINES.items()
        },
        **{f"{engine}.kind": "transformers" for engine in engines},
        **{f"{engine}.dtype": "bfloat16" for engine in ("policy.engine", "critic.engine")},
        **{f"{engine}.base_urls": ["http://127.0.0.1:9/v1"] for engine in engines},
        # Scripted models need no GPU; a stage takes turns with others on the same.
        **{f"{engine}.devices": (0,) for engine in (*engines, "policy.engine", "critic.engine")},
        **{
            f"{engine}.place": {"local": 1}
            for engine in (*engines, "policy.engine", "critic.engine")
        },
        "reward.place": {"local": 1},
        "workers.listen": "127.0.0.1:0",
        # There is no reward model in this run.
        "reward.devices": (0,),
        "reward.runner": "vllm",
        "training.devices": (0,),
        "training.sharding": "fsdp2",
        "annotation.keyed_on": "instruction",
        "annotation.source": [str(outputs)],
        "annotation.order": "both",
        "annotation.comparisons": "all",
        "assessment.reference": str(outputs),
        "assessment.difficulty": str(hard),
        "assessment.annotators": "single",
        "assessment.probes": "tiny",
        "assessment.oracle": "scripts:oracle",
        "critic.verifier": "scripts:verifier",
        "mode": "faithful_code",
        "recipe.train": "rs",
        "recipe.refine": "failures",
        "prompts.parts.layout": "same",
        "index.embedder.kind": "none",
    }


def changed(made: Made, field: ConfigField) -> RunConfig:
    """Return the configuration with one field changed to another valid value."""
    if field.path == "recipe.name":
        shared = [item for item in made.overrides if not item.startswith("recipe.m=")]
        return load_config("tiny", "reward-only", (*shared, "reward.model=tiny"), {})
    before = None if field.secret else resolved_at(made.config(), field.path)
    values: Iterable[Any] = GUESSES
    if field.path in made.chosen:
        values = (made.chosen[field.path],)
    elif field.path.endswith("batch_size"):  # still shared evenly by passes
        values = (before // 2 or 2,) if "micro" in field.path else (2 * before,)
    elif isinstance(before, int | float) and not isinstance(before, bool):
        values = chain((before + 1, before / 2, before - 1), GUESSES)
    for value in values:
        if value == before and type(value) is type(before):
            continue
        try:
            change = Override(source="test", path=field.path, value=value)
            config = made.config(*BESIDE.get(field.path, ()), change)
        except ConfigError:
            continue
        if field.secret or resolved_at(config, field.path) != before:
            return config
    raise AssertionError(f"no other value is known for {field.path}")


@pytest.mark.parametrize("path", [p for p, f in FIELDS.items() if f.effect == "semantic"])
def test_a_semantic_change_is_refused_by_name_with_the_choice_to_fork(made, path):
    with pytest.raises(ConfigError) as told:
        loop(made.lake, config=changed(made, FIELDS[path]))
    if path in (*USELESS, *NOT_HERE, *ON_GPUS):
        assert path.removeprefix("policy.").removeprefix("critic.") in str(told.value)
        assert kept(made.lake) == made.kept
        return
    assert f"config.{path}" in str(told.value)
    assert "--fork a re-uses every unit that does not depend on them" in str(told.value)
    assert kept(made.lake) == made.kept


# Neither a tracker's library nor Liger's is in the lock.
UNLOCKED = ("tracking.to", "training.liger")
TRIED_APART = (*UNLOCKED, *TRAINED_ON_GPUS, *BY_FILES, *OVER_NODES)
OTHERS = [p for p, f in FIELDS.items() if f.effect != "semantic" and p not in TRIED_APART]


@pytest.mark.parametrize("path", TRAINED_ON_GPUS)
def test_without_a_gpu_a_training_on_gpus_is_refused_by_name(made, path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    config = changed(made, FIELDS[path])
    with pytest.raises(ConfigError, match=rf"^{re.escape(path)}=.*no GPU is visible here"):
        loop(made.lake, config=config)
    assert FIELDS[path].effect == "cosmetic"
    assert kept(made.lake) == made.kept


@pytest.mark.parametrize("path", OVER_NODES)
def test_without_an_allocation_a_training_over_nodes_is_refused_by_name(made, path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(ConfigError, match=r"^training\.launcher=srun: this is no Slurm allocation"):
        loop(made.lake, config=made.config(*OVER_NODES[path]))
    assert FIELDS[path].effect == "cosmetic"
    assert kept(made.lake) == made.kept


@pytest.mark.parametrize("path", BY_FILES)
def test_batch_files_for_a_model_that_runs_here_are_refused_by_name(made, path):
    with pytest.raises(ConfigError, match=r"^engine\.batch=true: .* runs here: leave it out$"):
        loop(made.lake, config=changed(made, FIELDS[path]))
    assert FIELDS[path].effect == "cosmetic"
    assert kept(made.lake) == made.kept


@pytest.mark.parametrize("path", OTHERS)
def test_any_other_change_goes_on_and_changes_nothing(made, path):
    loop(made.lake, config=changed(made, FIELDS[path]))
    assert kept(made.lake) == made.kept


def test_all_these_changes_left_every_byte_as_it_was(made):
    assert whole(made.lake) == made.whole


@pytest.mark.parametrize("path", sorted(ALL.keys() - FIELDS.keys()))
def test_a_setting_of_another_recipe_is_refused_by_name(made, path):
    whole, _, _ = path.rpartition(".")
    with pytest.raises(ConfigError, match=f"unknown key '({path}|{whole})'"):
        made.config(Override(source="test", path=path, value=ALL[path].default))


def test_a_run_that_began_before_there_were_guards_goes_on_with_bare_questions(tmp_path):
    with quick_folder(tmp_path) as lake, stand_ins(lake):
        source = f"prompts.source={write_prompts(lake)}"
        loop(lake, config=load_config("tiny", VARIANT, (*SMALL, source, "iterations=1"), {}))
        folder, before = run_folder(lake, RUN), kept(lake)
        journal = Journal(folder)
        began = json.loads(journal.meta("fingerprint") or "")
        asked = json.loads(journal.meta("config") or "")
        del began["config"]["guard"], asked["guard"]
        journal.set_meta([("fingerprint", canonical_json(began)), ("config", json.dumps(asked))])
        journal.close()
        resumed = stored_config(asked, ("iterations=2",), {})
        with pytest.raises(ConfigError, match=r"config\.guard: False -> True"):
            loop(lake, config=stored_config(asked, ("guard=true",), {}))
        assert kept(lake) == before
        assert resumed.guard is False
        loop(lake, config=resumed)
        assert kept(lake) != before


def test_every_field_is_declared():
    assert {field.effect for field in ALL.values()} == {"semantic", "cosmetic", "live"}
