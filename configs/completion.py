"""Answers of several models: graded, under several principles (UltraFeedback), or compared.

ChatGLM-RLHF compares answers of various chat models and sampling strategies (Section 3.2).
"""

from .section import Section, semantic


class CompletionConfig(Section):
    """Which models answer, and under which principle in the system prompt."""

    pool: str = semantic(
        "policy",
        "name of a shipped pool of models, or a YAML file; policy: the policy alone, at several "
        "temperatures where answers are graded, by policy.sampling where they are compared",
    )
    principles: str = semantic(
        "ultrafeedback",
        "where answers are graded: name of a shipped mix of principles by source, a YAML file, or "
        "none",
    )
