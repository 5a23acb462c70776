"""A request to derive rows to train on, and its default name."""

from dataclasses import dataclass

from ....configs.filters import People
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


def is_distinct(how: Way) -> bool:
    """Whether the positives of a prompt shall have different texts."""
    return isinstance(how, Pairing) and how.distinct


def takes_all(how: Way) -> bool:
    """Whether all candidates with a verdict are taken, and not the best few."""
    return isinstance(how, Pairing) and how.rule == EITHER


def default_name(wanted: DerivationRequest, how: Way) -> str:
    """Return a name made from the request, and from how it is done."""
    said = {
        "people-": wanted.people,
        "agreement-": wanted.agreement,
        "i": wanted.iteration,
        "seed": wanted.seed,
        "": wanted.critiques,
        "as-": wanted.table,
    }
    words = [f"{sign}{value}" for sign, value in said.items() if value is not None]
    many = "" if isinstance(how, Binarising) or takes_all(how) else f"-k{how.top_k}"
    distinct = "-distinct" if is_distinct(how) else ""
    return "-".join([f"{wanted.rule}{many}{distinct}", *words])
