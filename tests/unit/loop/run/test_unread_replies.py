"""The limit of unreadable replies."""

from pathlib import Path

import pytest

from lpfloop.configs.load import load_config
from lpfloop.loop.run.unread_replies import ReplyCount, UnreadRepliesError, remedy


def test_share_counts_from_enough_replies():
    config = load_config("tiny", None, (), {})
    count = ReplyCount()
    for _ in range(5):
        count.add("scored", "{}")
        count.add("truncated", "A long one")
    count.require_read(config, Path("a"), "critique:sample", fewest=10)
    count.add("overlong", "")
    count.require_read(config, Path("a"), "critique:sample", fewest=12)
    with pytest.raises(UnreadRepliesError, match=r"6 of 11 .*\(5 truncated, 1 overlong\)"):
        count.require_read(config, Path("a"), "critique:sample", fewest=11)


def test_reason_names_a_setting():
    for stage, reason, setting in [
        ("critique:sample", "overlong", "critic.engine.max_model_len"),
        ("critique:sample", "truncated", "critic.sampling.max_tokens, which is 96"),
        ("grade:complete:honesty", "truncated", "grading.sampling.max_tokens"),
        ("prompts:review", "empty", "prompts.quality.sampling.max_tokens"),
    ]:
        assert setting in remedy(reason, stage, load_config("tiny", None, (), {}))
