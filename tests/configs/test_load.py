from pathlib import Path

import pytest
import yaml

from lpfloop.configs.load import (
    Override,
    fields,
    load_config,
    presets,
    resolved,
    semantic,
    stored_config,
    variants,
)
from lpfloop.configs.read import EXTENDS, LONGEST_CHAIN, preset_file
from lpfloop.configs.schema import PRESETS, ConfigError, RunConfig, SamplingConfig

BETAS = "did you mean 'training.dpo.beta' or 'training.kto.beta' or 'training.online_dpo.beta'?"


def load(*overrides, config=None, variant=None, env=None) -> RunConfig:
    return load_config(config, variant, overrides, env or {})


def refusal(*overrides, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*overrides, **options)
    return str(caught.value)


@pytest.fixture
def file(tmp_path):
    def write(text: str | bytes, name: str = "mine.yaml") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


# presets


@pytest.mark.parametrize("world", presets())
@pytest.mark.parametrize("variant", variants())
def test_every_preset_loads_in_every_variant(world, variant) -> None:
    assert load(config=world, variant=variant).recipe.name == variant


def test_every_shipped_file_is_reached() -> None:
    reached = {preset_file(world, name) for world in presets() for name in variants()}
    for _ in range(LONGEST_CHAIN):
        said = {path: yaml.safe_load(path.read_text()).get(EXTENDS) for path in reached}
        reached |= {path.with_name(f"{name}.yaml") for path, name in said.items() if name}
    assert set(PRESETS.glob("*/*")) == reached


def test_a_file_of_a_recipe_sets_more_than_its_name() -> None:
    said = {path: yaml.safe_load(path.read_text()) for path in PRESETS.glob("*/*")}
    bare = [
        path for path, values in said.items() if {**values, EXTENDS: ""} == bare_preset(path.stem)
    ]
    assert bare == []


def bare_preset(name: str) -> dict[str, object]:
    return {EXTENDS: "", "recipe": {"name": name}}


def test_a_recipe_without_a_file_starts_from_that_of_its_settings() -> None:
    assert preset_file("tiny", "dpo").name == "alpacafarm.yaml"
    assert preset_file("paper", "chatglm-ppo").name == "chatglm.yaml"
    assert preset_file("own", "ultrafeedback-bon").name == "ultrafeedback.yaml"
    assert preset_file("tiny", "rlrf").name == "rlrf.yaml"


def test_the_default_is_the_tiny_world_by_rlrf() -> None:
    assert load() == load(config="tiny", variant="rlrf")


def test_the_papers_numbers() -> None:
    config = load(config="paper")
    assert (config.recipe.n, config.recipe.m) == (10, 20)
    assert (config.training.dpo.learning_rate, config.training.dpo.beta) == (2e-6, 0.1)
    assert config.training.dpo.scheduler == "cosine"
    assert config.training.sft.learning_rate == 2e-5


def test_the_numbers_of_ultrafeedback() -> None:
    config = load(config="paper", variant="ultrafeedback-ppo")
    assert (config.recipe.n, config.completion.pool) == (4, "ultrafeedback")
    assert (config.grading.sampling.temperature, config.grading.sampling.top_p) == (0.0, 0.6)
    ppo = config.training.ppo
    assert (ppo.max_steps, ppo.rollouts, ppo.batch_size, ppo.learning_rate) == (80, 512, 64, 1e-6)
    assert load(config="paper", variant="ultrafeedback-bon").recipe.most == 16


def test_the_numbers_of_chatglm() -> None:
    config = load(config="paper", variant="chatglm-ppo")
    ppo = config.training.ppo
    assert (ppo.learning_rate, ppo.reference_reward) == (1e-6, True)
    assert (ppo.whiten_rewards, ppo.whiten_advantages) == ("none", "none")
    assert 600 <= ppo.max_steps <= 800
    assert config.policy.sampling.top_p == 1.0  # PPO learns by the probabilities of all tokens
    sampled = load(config="paper", variant="chatglm-dpo")
    assert sampled.policy.sampling.top_p == 0.9
    assert config.prompts.quality.least == 1
    assert config.pairs.balance_length


@pytest.mark.parametrize("world", presets())
def test_the_baseline_draws_as_many_samples(world) -> None:
    rlrf, baseline = load(config=world).recipe, load(config=world, variant="reward-only").recipe
    assert baseline.n == rlrf.n + rlrf.m


# order of the sources


def test_later_sources_win(file) -> None:
    mine = file("extends: tiny\nseed: 4\nrecipe: {n: 5}\n")
    env = {"LPFLOOP_SEED": "5"}
    assert load(config=mine).seed == 4
    assert load(config=mine, env=env).seed == 5
    assert load("seed=6", config=mine, env=env).seed == 6
    assert load("seed=6", Override(source="--seed", path="seed", value=7)).seed == 7
    assert load(config=mine).recipe.m == load().recipe.m


def test_values_are_yaml() -> None:
    config = load("prompts.evaluated=null", "policy.engine.base_urls=[http://a/v1, http://b/v1]")
    assert config.prompts.evaluated is None
    assert config.policy.engine.base_urls == ("http://a/v1", "http://b/v1")
    assert load("training.dpo.learning_rate=3e-5").training.dpo.learning_rate == 3e-5
    assert load("policy.model=http://127.0.0.1:8000/v1").policy.model == "http://127.0.0.1:8000/v1"


def test_the_end_of_a_path_is_enough_where_it_is_the_only_one() -> None:
    assert load("ppo.kl_coef=0.5").training.ppo.kl_coef == 0.5
    assert load("dpo.beta=0.7", "training.dpo.beta=0.8").training.dpo.beta == 0.8
    with pytest.raises(ConfigError, match=r"unknown key 'sampling'"):
        load("sampling.top_p=0.5")
    with pytest.raises(ConfigError, match=r"did you mean 'training\.reward\.l2_weight'"):
        load("reward.l2_weight=0.1")


def test_an_override_of_an_option_is_taken_as_it_is() -> None:
    odd = Override(source="--prompts", path="prompts.source", value="[a]: b.jsonl")
    assert load(odd).prompts.source == "[a]: b.jsonl"


def test_the_environment_nests_by_two_underscores() -> None:
    env = {"LPFLOOP_POLICY__SAMPLING__MAX_TOKENS": "9", "OTHER": "1"}
    aside = ("LPFLOOP_LAKE", "LPFLOOP_STATE", "LPFLOOP_WEIGHTS", "LPFLOOP_JOIN_TOKEN")
    assert load(env=env | dict.fromkeys(aside, "/x")).policy.sampling.max_tokens == 9


def test_a_plain_mapping_is_replaced_by_a_file_and_extended_by_a_path(file) -> None:
    mine = file("extends: tiny\ncritic: {task_aspects: {code: Efficiency}}\n")
    assert load(config=mine).critic.task_aspects == {"code": "Efficiency"}
    assert load("critic.task_aspects.code=Efficiency").critic.task_aspects == {
        **load().critic.task_aspects,
        "code": "Efficiency",
    }


def test_an_empty_section_says_nothing(file) -> None:
    assert load(config=file("extends: tiny\npolicy:\n  # nothing yet\n")) == load()


def test_files_extend_files(file) -> None:
    file("extends: paper\nseed: 3\n", "lab.yaml")
    config = load(config=file("extends: lab.yaml\niterations: 5\n"))
    assert (config.seed, config.iterations, config.recipe.n) == (3, 5, 10)


# variants


def test_a_file_keeps_its_recipe_unless_told(file) -> None:
    mine = file("extends: tiny\nrecipe: {name: reward-only, n: 7}\n")
    assert load(config=mine).recipe.name == "reward-only"
    assert load(config=mine).recipe.n == 7
    assert load(config=mine, variant="rlrf").recipe.name == "rlrf"


def test_another_variant_drops_what_it_does_not_know(file) -> None:
    mine = file("extends: tiny\nrecipe: {name: rlrf, n: 5, m: 7}\n")
    recipe = load(config=mine, variant="reward-only").recipe
    assert (recipe.name, recipe.n) == ("reward-only", 5)


def test_a_setting_can_name_the_variant() -> None:
    assert load("recipe.name=reward-only") == load(variant="reward-only")
    assert "disagree" in refusal("recipe.name=reward-only", variant="rlrf")


# refusals


@pytest.mark.parametrize(
    ("overrides", "options", "said"),
    [
        ([], {"config": "tny"}, "no preset and no file is named 'tny'; did you mean 'tiny'?"),
        ([], {"variant": "rlfr"}, "there is no variant 'rlfr'; did you mean 'rlrf'?"),
        ([], {"variant": "base"}, "there is no variant 'base'"),
        ([], {"config": "none.yaml"}, "none.yaml: cannot be read: No such file"),
        (["seed"], {}, "--set seed: write it as --set section.key=value"),
        (["=3"], {}, "write it as --set section.key=value"),
        (["a..b=3"], {}, "write it as --set section.key=value"),
        (["seed=[1"], {}, "--set seed: line 1: not readable as YAML"),
        (["policy={a: 1, a: 2}"], {}, "the key 'a' appears twice"),
        (["seed=-1"], {}, "--set: seed: must be greater than or equal to 0, not -1"),
        (["seed.x=1"], {}, "--set: seed.x: seed is a value and has no parts"),
        (["training.dpo.beta=.inf"], {}, "training.dpo.beta: must be a finite number"),
        (["recipe=3"], {}, "--set: recipe: must be a valid dictionary"),
        (
            ["recipe.topk=3"],
            {},
            "--set: unknown key 'recipe.topk'; did you mean 'recipe.top_k'?",
        ),
        (
            ["temperature=1"],
            {},
            "unknown key 'temperature'; did you mean 'policy.sampling.temperature'",
        ),
        (
            ["beta=0.2"],
            {},
            f"unknown key 'beta'; {BETAS}",
        ),
        (
            ["training.beta=0.2"],
            {},
            f"'training.beta'; {BETAS}",
        ),
        (["temprature=1"], {}, "did you mean 'policy.sampling.temperature' or 'critic.sampling."),
        ([], {"variant": "rlhf"}, "did you mean 'rlrf'? variants: rlrf, "),
        (["policy.zzz=1"], {}, "the keys here are engine, model, sampling"),
        (["policy.model=http://me:secret@host/v1"], {}, "a URL must not carry credentials"),
        (
            [],
            {"env": {"LPFLOOP_POLICY__ENGINE__KIND": "vlm"}},
            "environment variable LPFLOOP_POLICY__ENGINE__KIND: policy.engine.kind: must be 'auto'",
        ),
        ([], {"env": {"LPFLOOP_SEDE": "1"}}, "unknown key 'sede'; did you mean 'seed'?"),
        ([], {"env": {"LPFLOOP_SEED": "[1"}}, "environment variable LPFLOOP_SEED: line 1"),
    ],
)
def test_refusals_name_source_field_and_remedy(overrides, options, said) -> None:
    message = refusal(*overrides, **options)
    assert said in message
    assert "secret" not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 1\nseed: 2\n", "line 2: the key 'seed' appears twice"),
        ("1: a\n", "line 1: the key 1 is not a string"),
        ("- a\n", "must hold `key: value` lines, but is a list"),
        ("a: b: c\n", "line 1: not readable as YAML"),
        (b"a: \xff\n", "not UTF-8 at byte 3"),
        ("a: \x00\n", "not readable as YAML"),
        ("policy: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ("extends: tny\n", "extends: no preset and no file is named 'tny'"),
        ("extends: 3\n", "extends: must be the name of a preset or of a file"),
        ("extends: mine.yaml\n", "the files extend each other in a circle"),
        ("recipe: {name: rlfr}\n", "there is no variant 'rlfr'; did you mean 'rlrf'?"),
        ("extends: tiny\nrecipe: {name: base}\n", "there is no variant 'base'"),
        ("policy: {modle: x}\n", "unknown key 'policy.modle'; did you mean 'policy.model'?"),
        ("policy: [1]\n", "policy: must be a valid dictionary"),
        ("seed: 2021-02-30\n", "not readable as YAML"),
        ("[" * 5000, "not readable as YAML"),
    ],
)
def test_bad_files_are_refused_by_name(file, text, said) -> None:
    message = refusal(config=file(text))
    assert "mine.yaml: " in message
    assert said in message


def test_several_mistakes_are_told_at_once() -> None:
    lines = refusal("recipe.n=0", "seed=-1", "iterations=x", "a=1", "b=1", "c=1", "d=1").split("\n")
    assert len(lines) == 6
    assert lines[-1] == "... and 2 more"


# secrets, and what is stored


def test_the_key_is_known_and_never_shown() -> None:
    config = load(env={"LPFLOOP_API_KEY": "s3cret"})
    assert config.critic.engine.api_key.get_secret_value() == "s3cret"
    for shown in (repr(config), str(resolved(config)), str(semantic(config))):
        assert "s3cret" not in shown
    assert "api_key" not in str(resolved(config))


def test_a_configured_key_wins_over_the_general_one() -> None:
    config = load("critic.engine.api_key=own", env={"LPFLOOP_API_KEY": "general"})
    assert config.critic.engine.api_key.get_secret_value() == "own"
    assert config.policy.engine.api_key.get_secret_value() == "general"


def test_a_secret_of_the_wrong_kind_is_not_repeated() -> None:
    assert "98765" not in refusal("policy.engine.api_key=98765")


def test_what_is_stored_gives_the_configuration_back() -> None:
    config = load("recipe.n=3", config="paper", variant="reward-only")
    assert stored_config(resolved(config), [], {"LPFLOOP_SEED": "9"}) == config
    raised = stored_config(resolved(config), ["iterations=7"], {"LPFLOOP_API_KEY": "k"})
    assert raised.iterations == 7
    assert raised.policy.engine.api_key is not None


def test_a_setting_that_is_gone_is_told_with_what_took_its_place(tmp_path: Path) -> None:
    told = "models that do not fit onto their devices together take turns there by themselves"
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: own\nexclusive: true\n")
    for said in (refusal("exclusive=true"), refusal(config=str(mine))):
        assert told in said
        assert "'exclusive'" in said
        assert len(said.splitlines()) == 1
    assert str(mine) in refusal(config=str(mine))
    assert stored_config({**resolved(load()), "exclusive": True}, [], {}) == load()


# the fields


def test_every_field_is_described_and_classified() -> None:
    known = list(fields())
    assert len({field.path for field in known}) == len(known)
    for field in known:
        assert field.description, field.path
        assert field.effect in ("semantic", "cosmetic", "live")
    cosmetic = {field.path for field in known if field.effect != "semantic"}
    assert {"iterations", "critic.engine.concurrency", "policy.engine.api_key"} <= cosmetic
    assert not cosmetic & {"seed", "recipe.n", "training.dpo.beta", "policy.sampling.temperature"}
    assert all(field.effect == "cosmetic" for field in known if field.secret)


def test_a_cosmetic_change_is_no_semantic_change() -> None:
    assert semantic(load("policy.engine.concurrency=3", "iterations=9")) == semantic(load())
    assert semantic(load("recipe.m=1")) != semantic(load())
    assert semantic(SamplingConfig(temperature=0.5))["temperature"] == 0.5


def test_presets_travel_with_the_package() -> None:
    assert Path(PRESETS, "tiny", "rlrf.yaml").is_file()
