"""A run's critic compared with verified results: the groups of its answers, and the verifier."""

import os
from collections.abc import Sequence

from ...critics.verify import Verifier, own_verifier
from ...stores.lake import RunReader
from ..evaluation.critic_answers import AnswerDraw, CheckBy, judged_groups
from ..evaluation.critic_check import AnswerGroup
from ..lake.query.forms import FormError
from ..lake.trace.published_model import configuration
from .own_files import require_own_files


def named_groups(words: str) -> tuple[CheckBy, ...]:
    """Return the groups of a list with commas.

    Raises:
        FormError: if a group does not exist.
    """
    known = [name.value for name in CheckBy]
    groups = [word.strip() for word in words.split(",") if word.strip()]
    for word in groups:
        if word not in known:
            raise FormError(f"--by {word}: no such group; the groups are {', '.join(known)}")
    return tuple(CheckBy(word) for word in dict.fromkeys(groups))


def run_groups(run: RunReader, draw: AnswerDraw) -> Sequence[AnswerGroup]:
    """Return the judged answers of a run, verified as in the run.

    Raises:
        ConfigError: if a file of the user's is not as it was.
    """
    require_own_files(run.journal)
    config = configuration(run)
    own, matches = own_verifier(config.critic.verifier), config.facts.judge == "sentence_match"
    workers = max(2, os.cpu_count() or 2)
    with Verifier(own, sentence_match=matches, workers=workers) as verifier:
        return judged_groups(run, draw, verifier)
