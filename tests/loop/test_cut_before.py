"""A run that began before cut answers were told apart goes on as it began, under its old keys."""

import json
from typing import Any

from lpfloop.configs.describe import resolved
from lpfloop.configs.load import load_config, stored_config
from lpfloop.configs.methods import QuarkTraining
from lpfloop.loop.stages.online_work import settings_params


def test_what_was_stored_without_the_settings_means_what_it_did():
    now = load_config("tiny", "quark", ("reward.model=tiny",), {})
    stored: dict[str, Any] = json.loads(json.dumps(resolved(now)))
    del stored["reward"]["end_of_cut"], stored["reward"]["cut_last"]
    del stored["training"]["quark"]["missing_eos"]
    stored["training"]["ppo"]["missing_eos"] = "replace"
    before = stored_config(stored, (), {})
    assert now.reward.shown_ended("length") is False
    assert before.reward.shown_ended("length") is True
    assert (now.reward.cut_last, before.reward.cut_last) == (True, False)
    ruled = (now.training.quark.missing_eos, before.training.quark.missing_eos)
    assert ruled == ("below", "none")
    assert before.training.ppo.missing_eos == "replace"


def test_the_keys_of_its_steps_are_what_they_were():
    told = settings_params(QuarkTraining(missing_eos="none"))
    new = {"missing_eos", "scheduler", "schedule_by", "adam_eps", "gradient_steps"}
    assert not {*new, "quantiles_over", "group"} & told.keys()
    assert settings_params(QuarkTraining())["missing_eos"] == "below"
