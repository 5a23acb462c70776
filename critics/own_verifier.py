"""The user's verifier: a function that rates a candidate -1, 0 or 1, or returns None."""

from typing import cast

from ..configs.mistakes import ConfigError
from ..configs.own_function import OwnFunction, own_function
from ..stores.records import Prompt, Rating, storable

FIELD = "critic.verifier"
PROMPT_AND_TEXT = 2


def own_verifier(place: str | None) -> OwnFunction | None:
    """Import the verifier at a place, if one is configured.

    Raises:
        ConfigError: if it cannot be used.
    """
    if place is None:
        return None
    try:
        return own_function(place, arguments=PROMPT_AND_TEXT)
    except ConfigError as error:
        raise ConfigError(f"{FIELD}: {error}") from error


def own_rating(verifier: OwnFunction, prompt: Prompt, text: str) -> tuple[Rating, str] | None:
    """Return the rating of a candidate and the comment on it; None if the verifier returns None.

    Raises:
        ConfigError: if it raises anything, or returns anything else.
    """
    result: object = verifier(prompt, text)
    if result is None:
        return None
    match cast("tuple[object, ...]", result if isinstance(result, tuple) else (result, "")):
        # True and 1.0 are equal to 1, but their meaning here would be a guess.
        case (-1 | 0 | 1 as rating, str(comment)) if type(rating) is int:
            return cast("Rating", rating), storable(comment)
        case _:
            raise ConfigError(
                f"{FIELD}: {verifier.place} returned {result!r:.60} for the prompt "
                f"{prompt.prompt_id}: it returns -1, 0 or 1, one of these with a comment, as "
                "(1, 'right'), or None"
            )
