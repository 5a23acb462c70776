from dataclasses import replace

import pytest

from lpfloop.configs.schema import ConfigError, CriticConfig
from lpfloop.critics.feedback import FeedbackCritic
from lpfloop.stores.records import Message, Prompt

PROMPT = Prompt(
    prompt_id="p",
    task="math",
    split="train",
    messages=(Message(role="user", content="What is 2 + 2?"),),
    reference="2 + 2 = 4\n#### 4",
    checks=(),
    source="test",
)


@pytest.fixture
def critic():
    return FeedbackCritic.from_config(CriticConfig())


def asked(critic, prompt, answer="5"):
    question = critic.ask(prompt, answer)
    assert [message.role for message in question.messages] == ["user"]
    return question, question.messages[0].content


def test_a_task_with_a_fixed_aspect_and_a_reference_is_judged_by_both(critic):
    question, text = asked(critic, PROMPT)
    assert critic.shows_reference(PROMPT)
    assert question.expected.names == ("Logical Correctness",)
    assert "[Reference]\n2 + 2 = 4\n#### 4" in text
    assert "Skill: Logical Correctness" in text
    assert "Factuality" not in text


@pytest.mark.parametrize("reference", [None, "", " \n"])
def test_without_a_reference_the_template_without_one_is_used(critic, reference):
    prompt = replace(PROMPT, reference=reference)
    _, text = asked(critic, prompt)
    assert not critic.shows_reference(prompt)
    assert "[Reference]" not in text


def test_the_reference_can_be_kept_from_the_critic():
    critic = FeedbackCritic.from_config(CriticConfig(use_reference=False))
    _, text = asked(critic, PROMPT)
    assert not critic.shows_reference(PROMPT)
    assert "#### 4" not in text


def test_any_other_task_lets_the_model_choose_three_of_eight(critic):
    prompt = replace(PROMPT, task="poetry")
    question, text = asked(critic, prompt)
    assert not critic.shows_reference(prompt)
    assert (len(question.expected.names), question.expected.count) == (8, 3)
    assert "8. Skill: Harmlessness" in text
    reply = '{"Readability": 1, "Factuality": 0, "Completeness": -1}'
    assert [reading.status for reading in question.read(reply, "stop")] == ["scored"]
    (reading,) = question.read('{"Readability": 1}', "stop")
    assert reading.status == "wrong_keys"


def test_a_conversation_is_shown_turn_by_turn(critic):
    turns = (
        Message(role="user", content="Hi"),
        Message(role="assistant", content="Hello"),
        Message(role="user", content="2 + 2?"),
    )
    _, text = asked(critic, replace(PROMPT, messages=turns))
    assert "[Instruction]\n[User] Hi\n[Assistant] Hello\n[User] 2 + 2?\n\n[Answer]" in text


def test_reflection_shows_instruction_answer_and_feedback(critic):
    (message,) = critic.reflect(PROMPT, "5 {feedback}", 'It is 4.\n{"Logical Correctness": -1}')
    assert message.role == "user"
    shown = '[Answer]\n5 {feedback}\n\n[System]\nIt is 4.\n{"Logical Correctness": -1}\n'
    assert shown in message.content


def test_the_tiny_templates_ask_in_few_words():
    critic = FeedbackCritic.from_config(CriticConfig(templates="tiny", aspects="tiny"))
    _, text = asked(critic, PROMPT)
    assert len(text) < 150


def test_the_digest_depends_on_all_that_shapes_a_question(tmp_path):
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


def test_a_task_mapped_to_no_aspect_is_refused():
    config = CriticConfig(task_aspects={"math": "Logic"})
    with pytest.raises(ConfigError, match=r"critic\.task_aspects\.math: .* no aspect 'Logic'"):
        FeedbackCritic.from_config(config)


def test_fewer_than_three_aspects_are_refused(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("aspects: [{name: A, criteria: c, levels: {-1: a, 0: b, 1: c}}]", "utf-8")
    with pytest.raises(ConfigError, match="fewer than 3"):
        FeedbackCritic.from_config(CriticConfig(aspects=str(path), task_aspects={"math": "A"}))
