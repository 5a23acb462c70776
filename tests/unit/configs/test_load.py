import pytest

from lpfloop.configs.load import (
    Override,
    fields,
    load_config,
    resolve_config,
    semantic,
    settable,
    stored_config,
)
from lpfloop.configs.schema import ConfigError, RunConfig, SamplingConfig


def load(*overrides, config=None, recipe=None, env=None) -> RunConfig:
    return load_config(config, recipe, overrides, env or {})


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


def test_papers_numbers() -> None:
    config = load(config="paper")
    assert (config.recipe.n, config.recipe.m) == (10, 20)
    assert (config.training.dpo.learning_rate, config.training.dpo.beta) == (2e-6, 0.1)
    assert config.training.dpo.scheduler == "cosine"
    assert config.training.sft.learning_rate == 2e-5


def test_later_sources_win(file) -> None:
    mine = file("extends: tiny\nseed: 4\nrecipe: {n: 5}\n")
    env = {"LPFLOOP_SEED": "5"}
    assert load(config=mine).seed == 4
    assert load(config=mine, env=env).seed == 5
    assert load("seed=6", config=mine, env=env).seed == 6
    assert load("seed=6", Override(source="--seed", path="seed", value=7)).seed == 7
    assert load(config=mine).recipe.m == load().recipe.m


def test_environment_nests() -> None:
    env = {"LPFLOOP_POLICY__SAMPLING__MAX_TOKENS": "9", "OTHER": "1"}
    aside = ("LPFLOOP_LAKE", "LPFLOOP_STATE")
    assert load(env=env | dict.fromkeys(aside, "/x")).policy.sampling.max_tokens == 9


def test_files_extend_files(file) -> None:
    file("extends: paper\nseed: 3\n", "lab.yaml")
    config = load(config=file("extends: lab.yaml\niterations: 5\n"))
    assert (config.seed, config.iterations, config.recipe.n) == (3, 5, 10)


def test_file_keeps_recipe(file) -> None:
    mine = file("extends: tiny\nrecipe: {name: reward-only, n: 7}\n")
    assert load(config=mine).recipe.name == "reward-only"
    assert load(config=mine).recipe.n == 7
    assert load(config=mine, recipe="rlrf").recipe.name == "rlrf"


def test_refusals(subtests):
    kind = {"LPFLOOP_POLICY__ENGINE__KIND": "vlm"}
    for overrides, options, said in [
        ([], {"config": "tny"}, "did you mean 'tiny'?"),
        ([], {"recipe": "rlfr"}, "did you mean 'rlrf'?"),
        ([], {"config": "none.yaml"}, "none.yaml: cannot be read"),
        (["seed=[1"], {}, "--set seed: line 1"),
        (["seed=-1"], {}, "seed: must be greater"),
        (["training.dpo.beta=.inf"], {}, "training.dpo.beta: must be a finite number"),
        (["beta=0.2"], {}, "did you mean 'training.dpo.beta' or"),
        (["policy.zzz=1"], {}, "the keys here are engine, model, sampling"),
        (["policy.model=http://me:secret@host/v1"], {}, "credentials"),
        ([], {"env": kind}, "LPFLOOP_POLICY__ENGINE__KIND: policy.engine.kind: must be 'auto'"),
        ([], {"env": {"LPFLOOP_SEDE": "1"}}, "did you mean 'seed'?"),
    ]:
        with subtests.test(case=said):
            message = refusal(*overrides, **options)
            assert said in message
            assert "secret" not in message
            assert "\n" not in message


def test_bad_files(subtests, file):
    for text, said in [
        ("seed: 1\nseed: 2\n", "line 2: the key 'seed' appears twice"),
        ("- a\n", "must hold `key: value` lines, but is a list"),
        (b"a: \xff\n", "not UTF-8 at byte 3"),
        ("policy: !!python/object/apply:os.getcwd []\n", "could not determine a constructor"),
        ("extends: tny\n", "extends: unknown preset or file 'tny'"),
        ("extends: mine.yaml\n", "the files extend each other in a circle"),
        ("policy: {modle: x}\n", "unknown key 'policy.modle'; did you mean 'policy.model'?"),
        ("[" * 500, "not readable as YAML"),
    ]:
        with subtests.test(case=said):
            message = refusal(config=file(text))
            assert "mine.yaml: " in message
            assert said in message


def test_key_never_shown() -> None:
    config = load(env={"LPFLOOP_API_KEY": "s3cret"})
    assert config.critic.engine.api_key.get_secret_value() == "s3cret"
    for shown in (repr(config), str(resolve_config(config)), str(semantic(config))):
        assert "s3cret" not in shown
    assert "api_key" not in str(resolve_config(config))
    assert "98765" not in refusal("policy.engine.api_key=98765")


def test_stored_gives_back() -> None:
    config = load("recipe.n=3", config="paper", recipe="reward-only")
    assert stored_config(resolve_config(config), [], {"LPFLOOP_SEED": "9"}) == config
    raised = stored_config(resolve_config(config), ["iterations=7"], {"LPFLOOP_API_KEY": "k"})
    assert raised.iterations == 7
    assert raised.policy.engine.api_key is not None


def test_fields_classified() -> None:
    known = list(fields())
    assert len({field.path for field in known}) == len(known)
    for field in known:
        assert field.description, field.path
        assert field.effect in ("semantic", "cosmetic", "live")
    cosmetic = {field.path for field in known if field.effect != "semantic"}
    assert {"iterations", "models.NAME.engine.concurrency"} <= cosmetic
    assert len(known) <= 420
    assert not cosmetic & {"seed", "recipe.n", "training.dpo.beta", "policy.sampling.temperature"}
    secrets = [field for field in settable() if field.secret]
    assert {"policy.engine.api_key", "critic.engine.api_key"} <= {f.path for f in secrets}
    assert all(field.effect == "cosmetic" for field in secrets)


def test_cosmetic_is_not_semantic() -> None:
    assert semantic(load("policy.engine.concurrency=3", "iterations=9")) == semantic(load())
    assert semantic(load("recipe.m=1")) != semantic(load())
    assert semantic(SamplingConfig(temperature=0.5))["temperature"] == 0.5
