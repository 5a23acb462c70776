"""Why an answer ended: servers have many words for the few reasons there are."""

from typing import Literal

Ending = Literal["stop", "length", "withheld", "broken", "unknown"]

ENDED = frozenset(
    {
        *("stop", "eos", "eos_token", "eos_found", "end", "end_turn", "end_of_text", "eot"),
        *("stop_sequence", "stop_str", "stop_token", "complete", "completed", "done", "finish"),
        "finished",
    }
)
CUT = frozenset(
    {
        *("length", "max_length", "max_tokens", "max_new_tokens", "max_output_tokens"),
        *("max_completion_tokens", "model_length", "model_context_window_exceeded"),
        *("token_limit", "incomplete"),
    }
)
WITHHELD = frozenset(
    {
        *("content_filter", "content_filtered", "safety", "recitation", "blocklist", "spii"),
        *("prohibited_content", "refusal", "guardrail_intervened", "error_toxic", "sensitive"),
    }
)
BROKEN = frozenset(
    {"error", "abort", "aborted", "cancelled", "network_error", "insufficient_system_resource"}
)
"""The server gave up in the middle: the answer is none, and may come out whole the next time."""


MEANINGS: tuple[tuple[Ending, frozenset[str]], ...] = (
    ("stop", ENDED),
    ("length", CUT),
    ("withheld", WITHHELD),
    ("broken", BROKEN),
)


def ending(word: object) -> Ending:
    """Return what a `finish_reason` means, in any case, with or without details after a colon."""
    lower = word.lower().partition(":")[0].strip() if isinstance(word, str) else ""
    for meaning, words in MEANINGS:
        if lower in words:
            return meaning
    return "unknown"
