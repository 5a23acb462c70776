"""Settings that would change nothing, refused where somebody set them: presets may have them."""

from collections.abc import Iterator, Mapping

from .schema import ConfigError, RunConfig

PRESET, MODE = "preset ", "mode "
"""What the sources of values begin with that nobody set for this run."""
SIMULATED = (
    "annotation.flip_probability",
    "annotation.keyed_on",
    "annotation.comparisons",
    "recipe.n",
)
"""How simulated annotators compare a policy's answers in training."""
ANNOTATORS = ("annotation.pool", "annotation.single", "annotation.order", "annotation.attempts")
ROLES = tuple(f"annotation.{role}." for role in ("strong", "medium", "weak"))


def require_effect(config: RunConfig, sources: Mapping[str, str]) -> None:
    """Refuse settings of simulated annotators where people's labels are in their place.

    Args:
        config: the configuration.
        sources: who set which value, by dotted path.

    Raises:
        ConfigError: naming the first one.
    """
    for path in _idle(config):
        for name, source in sources.items():
            chosen = not source.startswith((PRESET, MODE))
            if chosen and (name == path or (path.endswith(".") and name.startswith(path))):
                raise ConfigError(
                    f"{source}: {name} would change nothing: annotation.source names people's "
                    "comparisons, and no annotators are asked; leave it out"
                )


def _idle(config: RunConfig) -> Iterator[str]:
    """Give the settings that change nothing; a path that ends with a dot is a section."""
    if config.annotation.source:
        yield from SIMULATED
        if config.assessment.reference is None:
            yield from (*ANNOTATORS, *ROLES)
