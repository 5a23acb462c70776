"""Completions by several models under several principles (UltraFeedback, Sections 2.2 and 2.3)."""

from .section import Section, semantic


class CompletionConfig(Section):
    """Which models answer, and under which principle in the system prompt."""

    pool: str = semantic("policy", "name of a shipped pool of models, or a YAML file")
    principles: str = semantic(
        "ultrafeedback", "name of a shipped mix of principles by source, a YAML file, or none"
    )
