"""The rule that stops a run whose answers mostly cannot be compared in time.

Each such comparison takes its full time and a worker, and says nothing about the answer.
"""

from ...configs.own_function import OwnFunction
from ...configs.schema import RunConfig
from ...critics.verify import Verifier
from .stop import Stopped

FEWEST = 50
"""The answers to math that must have been verified before a share of them counts."""


class TooManyTimeoutsError(Stopped):
    """Too large a share of the answers to math took too long to compare."""


def verifier_of(config: RunConfig, own: OwnFunction | None) -> Verifier:
    """Return a run's verifier, which ends the run if too many comparisons take too long."""
    most = config.critic.most_timeouts

    def require_few(timeouts: int, verified: int) -> None:
        if verified >= FEWEST and timeouts > most * verified:
            raise TooManyTimeoutsError(
                f"{timeouts} of {verified} answers to math took too long to compare, more than "
                f"critic.most_timeouts={most:g}: look at them with `lpfloop critiques --unscored`, "
                "then resume, or resume with a higher share"
            )

    return Verifier(
        own,
        sentence_match=config.facts.judge == "sentence_match",
        on_timeout=require_few,
    )
