"""A run that cannot fit into a device is refused before anything is paid, with what would help."""

import os
from pathlib import Path

import pytest
from gpus import show_gpus
from model_sizes import GLM_4_9B, LLAMA_7B, LLAMA_13B
from typer.testing import CliRunner

from lpfloop.configs.load import fields, load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon import hardware
from lpfloop.loop.daemon.hardware import Devices
from lpfloop.loop.daemon.memory_check import memory_of, require_memory
from lpfloop.loop.daemon.memory_section import memory_section
from lpfloop.loop.daemon.training_check import excluded
from lpfloop.loop.recipes.roles import needed_roles
from lpfloop.policies import devices
from lpfloop.policies.memory.shapes import ModelShape, UnknownShapeError, configured
from lpfloop.policies.memory.verdicts import GIB, Arithmetic, StageMemory

SIZES = {"7b": LLAMA_7B, "13b": LLAMA_13B, "glm": GLM_4_9B, "reward": LLAMA_7B}
VLLM = ("policy.engine.kind=vllm", "critic.engine.kind=vllm")


def shapes(folder: Path) -> ModelShape:
    if str(folder) not in SIZES:
        raise UnknownShapeError(f"not known until {folder} holds the model")
    return configured(SIZES[str(folder)])


def gpus(count: int, gib: int) -> Devices:
    return Devices(cards=(gib * GIB,) * count, ram=512 * GIB)


def config(*settings: str, variant: str = "rlrf", model: str = "7b") -> RunConfig:
    named = (
        f"policy.model={model}",
        "policy.engine.max_model_len=2048",
        "critic.model=http://j/v1",
    )
    return load_config("own", variant, (*named, VLLM[0], *settings), {})


def arithmetic(settings: RunConfig, have: Devices) -> Arithmetic:
    return memory_of(settings, have=have, shapes=shapes)


def stage(found: Arithmetic, name: str) -> StageMemory:
    exact = (s for s in found.stages if s.stage == name)
    return next(exact, None) or next(s for s in found.stages if s.stage.startswith(name))


def test_a_7b_model_samples_on_24_gib_and_trains_on_no_gpu_alone() -> None:
    small = arithmetic(config(), gpus(1, 24))
    assert stage(small, "policy answers").verdict != "does not fit"
    alone = stage(small, "train by dpo")
    assert alone.verdict == "does not fit"
    first, second = (relief.settings for relief in alone.reliefs[:2])
    assert first == ("training.lora.r=16", "training.dpo.micro_batch_size=1")
    assert second == ("training.lora.r=16", "training.lora.quantise=nf4")
    for settings in (first, second):
        relieved = arithmetic(config(*settings), gpus(1, 24))
        assert stage(relieved, "train by dpo").verdict == "fits"
    large = stage(arithmetic(config("training.processes=8"), gpus(8, 80)), "train by dpo")
    assert large.verdict == "does not fit"
    divided = ("training.sharding=fsdp2", "training.processes=auto")
    assert divided in [relief.settings for relief in large.reliefs]
    assert "--set training.sharding=fsdp2 --set training.processes=auto (-" in large.advice()
    assert stage(arithmetic(config(*divided), gpus(8, 80)), "train by dpo").verdict == "fits"


def test_a_critic_that_rewards_what_is_drawn_needs_room_beside_the_trainer() -> None:
    small = ("training.lora.r=16", "training.grpo.micro_batch_size=1")
    near = (*small, "critic.model=7b", VLLM[1])

    def training(*settings: str, count: int = 1) -> StageMemory:
        found = arithmetic(config(*settings, variant="grpo"), gpus(count, 80))
        return stage(found, "train by grpo")

    assert training(*small).verdict == "fits"
    alone = training(*near)
    assert alone.verdict == "does not fit"
    assert "critic" in {part.name for part in alone.parts}
    less = "critic.engine.memory_utilization=0.4"
    assert alone.reliefs[0].settings == (less,)
    assert training(*near, less).verdict != "does not fit"
    apart = ("training.devices=[0]", "policy.engine.devices=[0]", "critic.engine.devices=[1]")
    assert apart in [relief.settings for relief in training(*near, count=2).reliefs]
    assert training(*near, *apart, count=2).verdict == "fits"
    nobody = training(*near, "recipe.rewards={critic: 0, reward: 1}", "reward.model=reward")
    assert "critic" not in {part.name for part in nobody.parts}
    sampled = ("training.devices=[0]", "policy.engine.devices=[1]", "critic.engine.devices=[1]")
    found = arithmetic(config(*near, *sampled, variant="grpo"), gpus(2, 80))
    assert stage(found, "train by grpo: sampler and critic").verdict == "does not fit"


def test_sharded_by_the_users_file_it_fits(tmp_path: Path) -> None:
    file = tmp_path / "fsdp.yaml"
    file.write_text("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\n", encoding="utf-8")
    sharded = config("training.processes=8", f"training.accelerate_config={file}")
    assert stage(arithmetic(sharded, gpus(8, 80)), "train by dpo").verdict == "fits"


def test_two_nodes_of_four_gpus_divide_a_model_as_eight_do() -> None:
    divided = ("training.sharding=fsdp2", "training.processes=auto")
    over = (*divided, "training.nodes=2", "training.launcher=srun")
    by_dpo = "train by dpo"
    one = arithmetic(config(*divided), gpus(8, 80))
    two = arithmetic(config(*over), gpus(4, 80))
    half = arithmetic(config(*divided), gpus(4, 80))
    assert stage(two, by_dpo).most_bytes == stage(one, by_dpo).most_bytes
    assert stage(two, by_dpo).most_bytes < stage(half, by_dpo).most_bytes
    # It is measured on the first node alone.
    canary = "measure the canary"
    assert stage(two, canary).has_bytes == stage(half, canary).has_bytes


def test_the_canary_takes_the_whole_model_on_the_gpus_of_the_trainings_processes() -> None:
    alone = stage(arithmetic(config(model="13b"), gpus(16, 16)), "measure the canary")
    assert alone.verdict == "does not fit"
    several = config("training.processes=auto", model="13b")
    canary = stage(arithmetic(several, gpus(16, 16)), "measure the canary")
    assert (canary.verdict, canary.has_bytes) == ("fits", 16 * 16 * GIB)


def test_a_long_context_is_told_with_the_one_that_would_fit() -> None:
    long = config("policy.engine.max_model_len=131072", model="7b")
    found = stage(arithmetic(long, gpus(1, 40)), "policy answers")
    assert found.verdict == "does not fit"
    assert f"policy.engine.max_model_len={found.fitting}" in found.advice()
    shorter = config(f"policy.engine.max_model_len={found.fitting}", model="7b")
    assert stage(arithmetic(shorter, gpus(1, 40)), "policy answers").verdict != "does not fit"


@pytest.mark.parametrize("model", ["7b", "13b", "glm"])
@pytest.mark.parametrize("variant", ["rlrf", "ppo", "quark", "best-of-n", "chatglm-rs"])
def test_only_settings_that_exist_are_named_as_a_help(model: str, variant: str) -> None:
    known = {field.path for field in fields()}
    judges = [f"annotation.{role}.model=http://j/v1" for role in ("strong", "medium", "weak")]
    judges.append("annotation.pool=alpacafarm-hosted")
    given = () if variant == "rlrf" else judges
    found = arithmetic(config(*given, variant=variant, model=model), gpus(2, 24))
    named = [text for s in found.stages for relief in s.reliefs for text in relief.settings]
    assert named
    for setting in named:
        assert setting.split("=")[0] in known, setting


@pytest.mark.parametrize(
    "given",
    [
        (),
        ("training.weights=bfloat16",),
        ("training.lora.r=64",),
        ("training.optimizer=adamw_8bit",),
        ("training.sharding=fsdp2", "training.processes=auto"),
    ],
)
def test_only_settings_that_can_be_together_are_named_as_a_help(given: tuple[str, ...]) -> None:
    found = stage(arithmetic(config(*given, model="13b"), gpus(2, 16)), "train by dpo")
    assert found.reliefs
    for relief in found.reliefs:
        changed = config(*given, *relief.settings, model="13b")
        assert list(excluded(changed.training)) == []
        after = stage(arithmetic(changed, gpus(2, 16)), "train by dpo")
        assert found.most_bytes - after.most_bytes == relief.saved_bytes


def test_models_on_one_gpu_take_turns_and_sleep_in_the_machines_memory() -> None:
    both = ("critic.model=7b", "critic.engine.kind=vllm", "critic.engine.max_model_len=2048")
    other = (*both, "critic.engine.memory_utilization=0.8")
    found = arithmetic(config(*other), gpus(1, 80))
    assert stage(found, "policy answers").verdict == "fits"
    assert stage(found, "critic answers").verdict == "fits"
    asleep = stage(found, "models asleep")
    assert [part.name for part in asleep.parts] == ["policy", "critic"]
    assert asleep.most_bytes == pytest.approx(2 * 2 * 6.74e9, rel=0.01)
    assert asleep.verdict == "fits"
    # What the memory cannot hold is loaded anew: nothing is refused.
    little = Devices(cards=(80 * GIB,), ram=16 * GIB)
    assert stage(arithmetic(config(*other), little), "models asleep").verdict == "may not fit"


def test_models_on_gpus_of_their_own_do_not_sleep() -> None:
    apart = (
        *("critic.model=7b", "critic.engine.kind=vllm", "critic.engine.max_model_len=2048"),
        *("policy.engine.devices=[0]", "critic.engine.devices=[1]", "training.devices=[2]"),
    )
    found = arithmetic(config(*apart), gpus(3, 80))
    assert not [s for s in found.stages if s.stage == "models asleep"]


def test_a_stage_has_the_memory_of_its_own_devices() -> None:
    have = Devices(cards=(24 * GIB, 80 * GIB, 80 * GIB), ram=512 * GIB)
    mixed = config("policy.engine.devices=[1, 2]", "training.devices=[0]", "training.lora.r=16")
    found = arithmetic(mixed, have)
    share = stage(found, "policy answers").has_bytes
    assert share == pytest.approx(0.9 * 80 * GIB)
    assert stage(found, "train by dpo").has_bytes == 24 * GIB


def test_a_sampler_on_gpus_of_its_own_leaves_the_trainer_its_own() -> None:
    judges = [f"annotation.{role}.model=http://j/v1" for role in ("strong", "medium", "weak")]
    given = (*judges, "annotation.pool=alpacafarm-hosted", "training.lora.r=16")
    beside = arithmetic(config(*given, variant="ppo"), gpus(2, 80))
    apart = ("policy.engine.devices=[1]", "training.devices=[0]")
    own = arithmetic(config(*given, *apart, variant="ppo"), gpus(2, 80))
    shared, alone = (
        {part.name for part in stage(found, "train by ppo").parts} for found in (beside, own)
    )
    assert shared - alone == {"sampler"}
    assert stage(beside, "train by ppo: sampler").has_bytes == pytest.approx(0.3 * 80 * GIB)
    assert stage(own, "train by ppo: sampler").has_bytes == pytest.approx(0.9 * 80 * GIB)


def test_a_sampler_is_proposed_gpus_of_its_own() -> None:
    judges = [f"annotation.{role}.model=http://j/v1" for role in ("strong", "medium", "weak")]
    given = (*judges, "annotation.pool=alpacafarm-hosted", "training.lora.r=16")
    found = stage(
        arithmetic(config(*given, variant="ppo", model="13b"), gpus(4, 80)), "train by ppo"
    )
    apart = ("training.devices=[0]", "policy.engine.devices=[1,2,3]")
    assert [relief.settings for relief in found.reliefs].count(apart) == 1


def test_transformers_runs_a_trained_policy_in_the_type_in_which_it_is_published() -> None:
    weights = []
    for given in (("training.lora.r=16",), ("training.publish=bfloat16",), ()):
        settings = ("policy.engine.kind=transformers", *given)
        found = stage(arithmetic(config(*settings), gpus(1, 80)), "policy answers")
        weights.append(next(p.most_bytes for p in found.parts if p.name == "weights"))
    assert weights[0] == weights[1] == weights[2] // 2


def test_a_copy_over_two_gpus_holds_half_on_each() -> None:
    parts = []
    for count in (1, 2):
        spanned = config(f"policy.engine.tensor_parallel={count}")
        found = stage(arithmetic(spanned, gpus(2, 80)), "policy answers")
        parts.append(next(p.most_bytes for p in found.parts if p.name == "weights"))
    assert parts[0] == 2 * parts[1]


def test_the_reward_models_type_is_that_of_its_setting() -> None:
    weights = []
    for dtype in ("auto", "float32"):
        scored = config("reward.model=reward", f"reward.dtype={dtype}")
        found = stage(arithmetic(scored, gpus(1, 80)), "reward scores")
        weights.append(next(p.most_bytes for p in found.parts if p.name == "weights"))
    assert weights[1] == 2 * weights[0]


def test_without_a_gpu_the_cache_and_the_machines_memory_are_compared() -> None:
    found = arithmetic(config(), Devices(cards=(), ram=64 * GIB))
    cache = stage(found, "policy answers (vllm): cache")
    assert (cache.device, cache.has_bytes) == ("engine.kv_cache_gib", GIB)
    assert cache.verdict == "does not fit"
    assert "policy.engine.kv_cache_gib=2" in cache.advice()
    assert stage(found, "train by dpo").has_bytes == 64 * GIB


def test_a_model_whose_folder_is_not_there_is_not_known() -> None:
    found = arithmetic(config(model="absent"), gpus(1, 24))
    assert {s.verdict for s in found.stages} == {"not known"}


def test_nothing_is_trained_where_nothing_is_asked_for() -> None:
    found = arithmetic(config("iterations=0"), gpus(1, 24))
    assert not any("train" in s.stage for s in found.stages)


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    show_gpus(monkeypatch, tmp_path, "1 MiB")


@pytest.mark.usefixtures("small_machine")
def test_a_run_that_cannot_fit_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    told = CliRunner().invoke(app, ["run", "--lake", str(lake), "--iterations", "1"])
    assert told.exit_code == 2
    assert "this cannot fit into memory" in told.output
    assert "set memory=warn" in told.output
    assert not lake.exists()


@pytest.mark.usefixtures("small_machine")
def test_a_setting_overrides_the_refusal() -> None:
    for value in ("warn", "ignore"):
        settings = load_config(None, None, (f"memory={value}",), os.environ)
        require_memory(settings, needed_roles(settings))
    refusing = load_config(None, None, (), os.environ)
    roles = needed_roles(refusing)
    with pytest.raises(ConfigError, match="cannot fit"):
        require_memory(refusing, roles)


@pytest.mark.usefixtures("small_machine")
def test_the_plan_has_a_section_of_memory_in_narrow_lines() -> None:
    section = memory_section(load_config(None, None, (), os.environ))
    assert any("train by dpo" in line and "does not fit" in line for line in section.lines)
    assert any("what helps: --set" in line for line in section.lines)
    assert max(len(line) for line in section.lines) <= 78


@pytest.mark.usefixtures("small_machine")
def test_a_dry_run_is_refused_as_the_run_would_be(tmp_path: Path) -> None:
    given = ["run", "--lake", str(tmp_path / "lake"), "--dry-run", "--iterations", "1"]
    told = CliRunner().invoke(app, given)
    assert (told.exit_code, "cannot fit into memory" in told.output) == (2, True)
    warned = CliRunner().invoke(app, [*given, "--set", "memory=warn"])
    assert (warned.exit_code, "memory of a device" in warned.output) == (0, True)
    assert not (tmp_path / "lake").exists()


def test_the_memory_of_the_visible_cards_counts(monkeypatch, tmp_path) -> None:
    show_gpus(monkeypatch, tmp_path, "143771 MiB", "80 GiB")
    assert hardware.devices().cards == (143771 * 2**20, 80 * GIB)
    monkeypatch.setenv(devices.VISIBLE, "1")
    assert hardware.devices().cards == (80 * GIB,)
    monkeypatch.setattr(devices, "installed", lambda n: None if n == "vllm" else "1")
    assert hardware.devices().cards == ()


def test_vllms_own_settings_count() -> None:
    plain = stage(arithmetic(config(), gpus(1, 24)), "policy answers")
    quantised = "policy.engine.vllm.quantization=fp8"
    cache = "policy.engine.vllm.kv_cache_dtype=fp8"
    fewer = "policy.engine.vllm.max_num_seqs=8"
    for setting, name in ((quantised, "weights"), (cache, "one request's cache"), (fewer, "pass")):
        now = stage(arithmetic(config(setting), gpus(1, 24)), "policy answers")
        before, after = (
            next(p.most_bytes for p in s.parts if p.name == name) for s in (plain, now)
        )
        assert after == before // 2 if name != "pass" else after < before
    long = config("policy.engine.max_model_len=auto", model="glm")
    assert stage(arithmetic(long, gpus(1, 24)), "policy answers").context == 2048
