"""Clusters of prompts whose results are not independent: as given, else each prompt is its own."""

from collections.abc import Mapping, Sequence

from ...stores.records import Prompt


def clusters_of(prompts: Sequence[Prompt]) -> Mapping[str, str]:
    """Return each prompt's cluster, by the prompt's id."""
    return {prompt.prompt_id: prompt.cluster or prompt.prompt_id for prompt in prompts}
