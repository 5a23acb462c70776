"""The marks by which chat templates divide turns, and the protection against forged marks.

A template writes such a mark at the beginning or end of a turn, and the tokenizer turns it into one
special token. A text that contains a mark could end its own turn and begin another. In-process
engines know their tokenizer's special tokens. The template of a model at an endpoint is unknown,
and a fine-tuned model's name may hide it, so the marks of all families are broken.
"""

import re
from functools import cache

WORD_JOINER = "\u2060"
"""Invisible, and not part of any mark: after a mark's first character it breaks the mark."""

_BAR = "\uff5c"
"""The fullwidth bar, in the marks of DeepSeek."""

SHAPES = (r"<\|\w+\|>", rf"<{_BAR}[^\s<>{_BAR}]+{_BAR}>")
"""The marks of most families: `<|im_start|>`, `<|eot_id|>`, `<|user|>`; DeepSeek's."""

MARKS = (
    *("<s>", "</s>", "<unk>", "<bos>", "<eos>", "<pad>", "<BOS_TOKEN>", "<EOS_TOKEN>"),
    *("<start_of_turn>", "<end_of_turn>", "<|turn>", "<turn|>", "<|channel>", "<channel|>"),
    *("[gMASK]", "[MASK]", "[sMASK]", "<sop>", "<eop>", "]~!b[", "]~b]", "[e~["),
    *("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[CALL_ID]", "[ARGS]", "[THINK]", "[/THINK]"),
)
"""Other marks: of Cohere, Gemma, GLM, Llama 2, MiniMax and Mistral."""


def broken(text: str) -> str:
    """Return `text` with the marks of all families broken."""
    return _starts().sub(rf"\g<0>{WORD_JOINER}", text)


@cache
def _starts() -> re.Pattern[str]:
    """Find the first character of each mark: of two that overlap, both are found.

    The check of the first character comes before the look-behind for the whole mark, so that
    the search skips from one such character to the next.
    """
    marks = "|".join((*SHAPES, *map(re.escape, MARKS)))
    firsts = re.escape("".join(sorted({mark[0] for mark in (*SHAPES, *MARKS)})))
    return re.compile(f"[{firsts}](?<=(?=(?:{marks})).)", re.DOTALL)
