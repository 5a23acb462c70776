"""The study of displacement: which tokens both answers share, which arms it compares, and how."""

import sys
from pathlib import Path

import pytest
from trainings import make_model, turn

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from displaced.arms import ARMS, distinct  # noqa: E402
from displaced.tables import print_arms, print_stories  # noqa: E402

from lpfloop.configs.methods import DPOTraining  # noqa: E402


def test_every_arm_is_a_training_that_can_be_set():
    for arm in ARMS.values():
        assert DPOTraining.model_validate({**DPOTraining().model_dump(), **arm.update})


def test_distinct_keeps_the_first_pair_of_each_chosen_text_of_a_prompt():
    texts = [("p", "one"), ("p", "one"), ("p", "two"), ("q", "one")]
    rows = [
        {"prompt_id": p, "chosen": turn("assistant", text), "rank": n}
        for n, (p, text) in enumerate(texts)
    ]
    assert [row["rank"] for row in distinct(rows)] == [0, 2, 3]


@pytest.mark.model
def test_tokens_that_both_answers_have_are_told_from_the_others(tmp_path: Path):
    import torch
    from displaced.measured import spoken, summary, token_logprobs
    from transformers import AutoModelForCausalLM

    from lpfloop.policies.engines.chat_template import load_tokenizer

    folder = make_model(tmp_path / "model")
    row = {
        "prompt": turn("user", "2+3?"),
        "chosen": turn("assistant", "2+3=5."),
        "rejected": turn("assistant", "2+3=6!."),
    }
    tokenizer = load_tokenizer(folder, None)
    pair = spoken(row, "math", "sums", tokenizer)
    assert pair.prefix == 4
    assert [sum(shared) for shared in pair.shared] == [6, 6]  # with ".", and the end
    assert [len(answer) for answer in pair.answers] == [7, 8]

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    (sides,) = summary([pair], token_logprobs(model, [pair]))
    ids = torch.tensor([pair.prompt + pair.answers[0]])
    logits = model(input_ids=ids).logits.log_softmax(-1)[0, len(pair.prompt) - 1 : -1]
    nats = logits.gather(1, ids[0, len(pair.prompt) :, None])[:, 0].tolist()
    total, tokens, prefix, shared, other = sides[0]
    assert tokens == 7
    assert (total, prefix) == pytest.approx((sum(nats), sum(nats[:4])), rel=1e-5)
    assert (shared, other) == pytest.approx((sum(nats) - nats[4], nats[4]), rel=1e-5)


def result(arm: str, after: float, chosen: float) -> dict[str, object]:
    """The result of a training of two stories, one of which has twice the prompts and pairs."""
    answer = [-4.0, 10, 0.0, 0.0, 0.0]
    families = {"a": (10, 0.5, after), "b": (20, 0.5, 0.5)}
    return {
        "run": "r",
        "iteration": 1,
        "arm": arm,
        "held_out": {
            name: {"task": "math", "n": n, "before": then, "after": now}
            for name, (n, then, now) in families.items()
        },
        "pairs": {
            name: {
                "task": "math",
                "n": n,
                "before": [answer, answer],
                "after": [[chosen, *answer[1:]], answer],
                "fell": 0.25,
                "chosen_right": 1.0,
            }
            for name, (n, *_) in families.items()
        },
    }


def test_arms_are_compared_on_the_same_start(capsys):
    print_arms([result("Eq. 3", 0.2, -5.0), result("sft_weight=1", 0.8, -3.0)], "math")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "| Eq. 3 | 1 | -10.0 | 1 | -10.0 |  | -1.00 | 25 % |"
    assert lines[-1] == "| sft_weight=1 | 1 | +10.0 | 0 | +10.0 | +20.0 | +1.00 | 25 % |"


def test_too_few_stories_have_no_correlation(capsys):
    print_stories([result("Eq. 3", 0.2, -5.0)], "math")
    assert capsys.readouterr().out == ""
