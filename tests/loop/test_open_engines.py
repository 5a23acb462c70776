"""Which engines of a run stay open beside one another."""

from critic_server import serving_critic

from lpfloop.configs.load import load_config
from lpfloop.loop.run.models import Models


def models(tmp_path, critic: str, *more: str) -> Models:
    settings = [
        *("policy.engine.kind=scripted", "policy.engine.script=scripts:policy"),
        *(f"critic.model={critic}", *more),
    ]
    return Models.of(load_config("tiny", None, settings, {}), tmp_path, asked=["critic"])


def test_an_endpoint_takes_no_device_from_the_policy(tmp_path):
    with serving_critic() as url:
        opened = models(tmp_path, url)
        policy = opened.engine(opened.initial)
        critic = opened.engine(opened.feedback)
        assert opened.engine(opened.initial) is policy
        assert opened.engine(opened.feedback) is critic
        opened.close()


def test_a_critic_that_runs_here_takes_turns_with_the_policy(tmp_path):
    here = ("critic.engine.kind=scripted", "critic.engine.script=scripts:critic")
    opened = models(tmp_path, "tiny", *here)
    policy = opened.engine(opened.initial)
    opened.engine(opened.feedback)
    assert opened.engine(opened.initial) is not policy
    opened.close()
