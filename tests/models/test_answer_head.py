"""The head that scores answers on a CPU gives TRL's numbers."""

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl.kernels.chunked_logprob import ChunkedLogProbFunction
from trl.trainer import utils

from lpfloop.policies.trainers.answer_head import AnswerHead, use_answer_head

NAMES = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")


@pytest.mark.parametrize("softcap", [None, 5.0])
def test_numbers_of_trl(softcap: float | None) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(600, 16, requires_grad=True)
    weight = torch.randn(97, 16, requires_grad=True)
    bias = torch.randn(97, requires_grad=True)
    targets = torch.randint(0, 97, (600,))
    each: list[Any] = []
    for head in (AnswerHead, ChunkedLogProbFunction):
        found: Any = head.apply(hidden, weight, bias, targets, 0.7, 64, softcap, 1.3, NAMES)
        (found[0] * torch.arange(600.0)).sum().backward()
        gradients = [tensor.grad.clone() for tensor in (hidden, weight, bias)]
        for tensor in (hidden, weight, bias):
            tensor.grad = None
        each.append((found, gradients))
    (ours, gradients), (theirs, wanted) = each
    for mine, other in zip(ours[:4], theirs[:4], strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    assert torch.equal(ours[4], theirs[4])
    for mine, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-1)


def test_omits_unrequested_outputs() -> None:
    hidden, weight = torch.randn(3, 4), torch.randn(7, 4)
    targets = torch.tensor([0, 1, 2])
    found = AnswerHead.apply(hidden, weight, None, targets, 1.0, 64, None, 1.0, ("log_probs",))
    assert [value is None for value in found] == [False, True, True, True, True]


def test_head_of_another_type() -> None:
    """TRL may request float32 logits from bfloat16 weights."""
    hidden, weight = torch.randn(3, 4), torch.randn(7, 4).bfloat16()
    targets = torch.tensor([0, 1, 2])
    found = AnswerHead.apply(hidden, weight, None, targets, 1.0, 64, None, 1.0, NAMES)
    wanted = ChunkedLogProbFunction.apply(hidden, weight, None, targets, 1.0, 64, None, 1.0, NAMES)
    torch.testing.assert_close(found[0], wanted[0])


def test_no_answer_token() -> None:
    hidden, weight = torch.randn(0, 4, requires_grad=True), torch.randn(7, 4)
    targets = torch.zeros(0, dtype=torch.long)
    found: Any = AnswerHead.apply(hidden, weight, None, targets, 1.0, 64, None, 1.0, NAMES)
    assert found[0].shape == (0,)
    found[0].sum().backward()


def test_trl_scores_answers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's forward gives `AnswerHead` the labelled tokens, and puts its numbers in place."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("_use_triton", "_ChunkedLogProbFunction"):
        monkeypatch.setattr(utils, name, getattr(utils, name))
    use_answer_head()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    model: Any = LlamaForCausalLM(
        LlamaConfig(vocab_size=50, num_attention_heads=2, num_key_value_heads=1, **sizes)
    )
    ids = torch.randint(0, 50, (2, 9))
    whole = model(ids).logits.log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None])[..., 0]
    labels = ids.clone()
    labels[0, :4], labels[1, :7] = -100, -100
    scored: list[int] = []
    apply = AnswerHead.apply

    def counted(hidden: torch.Tensor, *rest: Any) -> Any:
        scored.append(len(hidden))
        return apply(hidden, *rest)

    monkeypatch.setattr(AnswerHead, "apply", counted)
    utils.add_fused_lm_head(model, outputs=("log_probs",))
    found = model(ids, labels=labels, fused_lm_head=True).log_probs
    assert scored == [7]
    torch.testing.assert_close(found, whole.where(labels[:, 1:] != -100, 0.0))
