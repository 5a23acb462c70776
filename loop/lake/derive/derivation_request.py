"""A request to derive rows to train on, and its default name."""

from collections.abc import Mapping
from dataclasses import dataclass

from ....configs.filters import People
from ....stores.derived import DerivedError
from ...data.binarize import Binarising
from ...data.judged_candidates import Agreement
from ...data.pairs import EITHER, Pairing

Way = Pairing | Binarising


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivationRequest:
    """A request; None means the default of the rule or the run, or all iterations."""

    rule: str
    table: str | None = None
    top_k: int | None = None
    seed: int | None = None
    iteration: int | None = None
    distinct: bool | None = None
    people: People | None = None
    agreement: Agreement | None = None
    critiques: str | None = None
    name: str | None = None

    def refuse_others(self, reads: str, *allowed: str) -> None:
        """Refuse the options that a rule does not take; `reads` names its input.

        Raises:
            DerivedError: naming the options.
        """
        options: Mapping[str, object] = {
            "--derived": self.critiques,
            "--top-k": self.top_k,
            "--distinct": self.distinct,
            "--people": self.people,
            "--agreement": self.agreement,
            "--seed": self.seed,
            "--table": self.table,
        }
        given = [o for o, value in options.items() if value is not None and o not in allowed]
        if given:
            raise DerivedError(f"--rule {self.rule} reads {reads} alone: omit {', '.join(given)}")


def takes_all(how: Way) -> bool:
    """Whether all candidates with a verdict are taken, and not the best few."""
    return isinstance(how, Binarising) or how.rule == EITHER


def is_distinct(how: Way) -> bool:
    """Whether the positives of a prompt shall have different texts."""
    return isinstance(how, Pairing) and how.distinct


def default_name(request: DerivationRequest, how: Way) -> str:
    """Return a name made from the request, and from how it is done."""
    parts = {
        "people-": request.people,
        "agreement-": request.agreement,
        "i": request.iteration,
        "seed": request.seed,
        "": request.critiques,
        "as-": request.table,
    }
    words = [f"{sign}{value}" for sign, value in parts.items() if value is not None]
    many = f"-k{how.top_k}" if isinstance(how, Pairing) and not takes_all(how) else ""
    distinct = "-distinct" if is_distinct(how) else ""
    return "-".join([f"{request.rule}{many}{distinct}", *words])
