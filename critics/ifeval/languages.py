# pyright: basic
"""The language of a text, by langdetect like IFEval's authors; seeded, so that it is stable.

Unlike theirs, a text without a single letter is in no language: an answer of digits does not show
that it is in Hindi.
"""

from functools import cache
from importlib.util import find_spec
from typing import Any

from ...configs.schema import ConfigError
from ...stores.installation import pip_install

READ = 20_000
"""Characters that are looked at; langdetect itself keeps 10,000 of them."""
SEED = 0


def require_langdetect() -> None:
    """Raise an error if langdetect is not installed.

    Raises:
        ConfigError: with the remedy.
    """
    if find_spec("langdetect") is None:
        raise ConfigError(
            "checks of an answer's language need langdetect; install it with: "
            f"{pip_install('langdetect')}"
        )


def language_of(text: str) -> str | None:
    """Return the code of the text's most likely language; None if the text is without letters.

    Raises:
        ConfigError: if langdetect is not installed.
    """
    require_langdetect()
    from langdetect import LangDetectException

    detector = _factory().create()
    detector.append(text[:READ])
    try:
        return detector.detect()
    except LangDetectException:
        return None


@cache
def _factory() -> Any:
    """Return langdetect's profiles, which take half a second to read."""
    from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory

    factory = DetectorFactory()
    factory.load_profile(PROFILES_DIRECTORY)
    factory.set_seed(SEED)
    return factory
