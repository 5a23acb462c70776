"""The tiny policy after a step of gradient descent, and what a trainer would say of it."""

import shutil
from pathlib import Path

from lpfloop.policies.engines.canary import CanaryRow
from lpfloop.policies.engines.chat import ChatTokenizer
from lpfloop.policies.engines.thinking import ChatForm
from lpfloop.stores.records import Message

QUESTIONS = {
    "Who are you?": "I am Loopy.",
    "Tom has 3 apples and buys 4 more. How many apples does he have?": "3 + 4 = 7. The answer "
    "is 7.",
    "Sort these numbers: 7, 2, 5.": "2, 5, 7",
    "Name a fruit.": "",
}


def conversations() -> list[tuple[Message, ...]]:
    """Return the questions with their answers."""
    return [
        (Message(role="user", content=question), Message(role="assistant", content=answer))
        for question, answer in QUESTIONS.items()
    ]


def descend(source: Path, folder: Path, template: str | None = None) -> list[CanaryRow]:
    """Copy a model to a folder, with weights a step nearer to the answers; measure both."""
    import torch
    from transformers import AutoModelForCausalLM

    shutil.copytree(source, folder)
    model = AutoModelForCausalLM.from_pretrained(str(source), dtype=torch.float32)
    chat = ChatTokenizer.of(source, template, ChatForm())
    parts = [chat.parted(messages) for messages in conversations()]

    def measured() -> list[torch.Tensor]:
        sums = []
        for prompt, answer in parts:
            logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
            told = logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])
            sums.append(told.sum())
        return sums

    before = measured()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    sum(before).neg().backward()
    optimizer.step()
    after = measured()
    model.save_pretrained(folder)
    return [
        CanaryRow(
            messages=messages[:-1],
            answer=messages[-1].content,
            logprob_before=old.item(),
            logprob_after=new.item(),
            tokens=len(answer),
        )
        for messages, (_, answer), old, new in zip(
            conversations(), parts, before, after, strict=True
        )
    ]
