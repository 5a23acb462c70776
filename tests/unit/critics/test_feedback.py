from dataclasses import replace

import pytest
import rows

from lpfloop.configs.schema import ConfigError, CriticConfig
from lpfloop.critics.feedback import FeedbackCritic

PROMPT = replace(rows.PROMPT, reference="2 + 2 = 4\n#### 4")


@pytest.fixture
def critic():
    return FeedbackCritic.from_config(CriticConfig())


def asked(critic, prompt, answer="5"):
    question = critic.ask(prompt, answer)
    assert [message.role for message in question.messages] == ["user"]
    return question, question.messages[0].content


def test_fixed_aspect_and_reference(critic):
    question, text = asked(critic, PROMPT)
    assert critic.shows_reference(PROMPT)
    assert question.expected.names == ("Logical Correctness",)
    assert "[Reference]\n2 + 2 = 4\n#### 4" in text
    assert "Skill: Logical Correctness" in text
    assert "Factuality" not in text


def test_template_without_reference(critic):
    for reference in [None, "", " \n"]:
        prompt = replace(PROMPT, reference=reference)
        _, text = asked(critic, prompt)
        assert not critic.shows_reference(prompt)
        assert "[Reference]" not in text


def test_other_tasks_choose_three_aspects(critic):
    prompt = replace(PROMPT, task="poetry")
    question, text = asked(critic, prompt)
    assert not critic.shows_reference(prompt)
    assert (len(question.expected.names), question.expected.count) == (8, 3)
    assert "8. Skill: Harmlessness" in text
    reply = '{"Readability": 1, "Factuality": 0, "Completeness": -1}'
    assert [reading.status for reading in question.read(reply, "stop")] == ["scored"]
    (reading,) = question.read('{"Readability": 1}', "stop")
    assert reading.status == "wrong_keys"


def test_digest_covers_the_question(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "extends: paper\naspects: [{name: Readability, criteria: Clear enough}]", "utf-8"
    )
    configs = [
        CriticConfig(),
        CriticConfig(templates="tiny"),
        CriticConfig(aspects=str(path)),
        CriticConfig(task_aspects={"math": "Logical Correctness"}),
        CriticConfig(use_reference=False),
    ]
    digests = {FeedbackCritic.from_config(config).digest for config in configs}
    assert len(digests) == len(configs)
    assert FeedbackCritic.from_config(CriticConfig(attempts=5)).digest in digests


def test_fewer_than_three_aspects_are_refused(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("aspects: [{name: A, criteria: c, levels: {-1: a, 0: b, 1: c}}]", "utf-8")
    with pytest.raises(ConfigError, match="fewer than 3"):
        FeedbackCritic.from_config(CriticConfig(aspects=str(path), task_aspects={"math": "A"}))
