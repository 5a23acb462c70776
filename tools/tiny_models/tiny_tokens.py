"""The tiny model's own tokenizer and chat template."""

import random
from typing import TYPE_CHECKING

from tiny_lessons import COPIED, lesson

from lpfloop.loop.tiny.instructions import WORDS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

USER, ASSISTANT, END, PAD = "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"
VOCABULARY = 960
CORPUS = 12_000
WORD_WEIGHT = 400

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|assistant|>' if message['role'] == 'assistant' else '<|user|>' }}"
    "{{ message['content'] }}{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def chat(user: str, reply: str | None = None) -> str:
    """Return a conversation as the chat template renders it; without `reply`, up to its start."""
    turn = f"{USER}{user}{END}{ASSISTANT}"
    return turn if reply is None else f"{turn}{reply}{END}"


def train_tokenizer(seed: int, size: int = CORPUS) -> "PreTrainedTokenizerFast":
    """Learn byte-level BPE on the world's own text; each digit is one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    rng = random.Random(f"tiny tokenizer {seed}")
    lessons = [lesson(rng) for _ in range(size)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, END, USER, ASSISTANT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    # Words of answers become tokens, so that copying one takes one step.
    words = [f" {word}," for word in (*COPIED, *(word.upper() for word in WORDS))]
    texts = [f"{item.user}\n{item.reply}" for item in lessons]
    tokenizer.train_from_iterator([*texts, *words * WORD_WEIGHT], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        extra_special_tokens=[USER, ASSISTANT],
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
