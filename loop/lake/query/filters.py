"""The filters of row lists: one table of filters, and the columns that they read.

A new filter is a line of `Filters`. `lpfloop candidates`, `critiques` and `pairs`, the lists of
`lpfloop view`, and `run.rows` in Python take their filters from here. No heavy module is imported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Annotated, TypedDict, get_args, get_type_hints

from ....stores.records import Candidate, CandidateKind, Critique, Grade, Pair, Prompt


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on a column: `=`, `<=`, `>=`, or `~` for a text or a regular expression.

    `words` is a SELECT of the values that the column can have; another value is an error.
    """

    column: str
    operator: str
    help: str
    words: str = ""
    least: int | None = None
    most: int | None = None


PROMPT_WORDS = "select {column} as word from prompts"
KINDS = f"select unnest({[*get_args(CandidateKind)]}) as word"


class Filters(TypedDict, total=False):
    """The filters of all lists but the iteration. A list has those whose columns its table has."""

    task: Annotated[str, Filter("task", "=", "Only prompts of this task.", PROMPT_WORDS)]
    family: Annotated[str, Filter("family", "=", "Only prompts of this family.", PROMPT_WORDS)]
    split: Annotated[str, Filter("split", "=", "Only prompts of this split.", PROMPT_WORDS)]
    kind: Annotated[
        str,
        Filter("kind", "=", "Only this kind: sample, refinement, greedy or external.", KINDS),
    ]
    rule: Annotated[
        str,
        Filter("rule", "=", "Only pairs made by this rule.", "select rule as word from {table}"),
    ]
    aspect: Annotated[
        str,
        Filter(
            "aspect",
            "=",
            "Only rows that are rated in this aspect.",
            "select {aspect} as word from {judged}",
        ),
    ]
    rating: Annotated[int, Filter("rating", "=", "Only with this rating.", least=-1, most=1)]
    unscored: Annotated[bool, Filter("unscored", "=", "Only with a reply that could not be read.")]
    min_reward: Annotated[float, Filter("reward", ">=", "Reward at least this.")]
    max_reward: Annotated[float, Filter("reward", "<=", "Reward at most this.")]
    text: Annotated[
        str, Filter("text", "~", "Only with this text in any case, or matching /REGEX/.")
    ]


FILTERS: Mapping[str, tuple[type, Filter]] = MappingProxyType(
    {name: get_args(hint) for name, hint in get_type_hints(Filters, include_extras=True).items()}
)
"""Each filter's type and condition, by its name."""
BY_CRITIQUE = frozenset({"aspect", "rating", "unscored"})
"""The filters that read the critiques of a candidate, if the table lacks such columns."""

JOINED: Mapping[str, tuple[str, str]] = {
    **{
        name: (
            "prompt_id",
            f"select prompt_id, any_value({name}) as {name} from prompts {{of}} group by prompt_id",
        )
        for name in ("task", "family", "split")
    },
    "kind": ("candidate_id", "select candidate_id, kind from candidates {of}"),
    "reward": (
        "candidate_id",
        # The last reward counts: arg_max_null keeps it even if its score is null.
        """select candidate_id, arg_max_null(score, _place) as reward from rewards {of}
        group by candidate_id""",
    ),
}
"""Columns that a table takes from another one: by which key, and from which rows."""


def _contents(messages: str) -> str:
    """Return the text of a conversation, in SQL."""
    return f"array_to_string(list_transform({messages}, lambda m: m.content), chr(10))"


def _columns(row_type: type) -> list[str]:
    return [column.name for column in fields(row_type)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """The columns of a table's list: stored columns, columns of other tables, computed columns.

    `added` are the columns of `JOINED` that are shown. `texts` are the columns that the filter
    `text` reads, in SQL. `candidate` is the column of the candidate whose critiques are filtered by
    aspect and rating. Rows of equal rank are sorted by `key`.
    """

    stored: Sequence[str]
    key: str = ""
    added: Sequence[str] = ()
    computed: Mapping[str, str] = field(default_factory=dict[str, str])
    texts: Sequence[str] = ()
    candidate: str = ""

    @property
    def columns(self) -> list[str]:
        """The columns that filters and the sorting can name."""
        joined = [name for name, (key, _) in JOINED.items() if key in self.stored]
        return list(dict.fromkeys([*self.stored, *self.computed, *joined]))

    @property
    def filters(self) -> dict[str, tuple[type, Filter]]:
        """The filters that a list of this table has."""
        there = set(self.columns) - {"text"}
        if self.texts:
            there.add("text")
        if self.candidate:
            there.update(BY_CRITIQUE)
        return {name: found for name, found in FILTERS.items() if found[1].column in there}


TABLES: Mapping[str, RowTable] = {
    "prompts": RowTable(stored=_columns(Prompt), key="prompt_id", texts=[_contents("messages")]),
    "candidates": RowTable(
        stored=_columns(Candidate),
        key="candidate_id",
        added=["task", "reward"],
        computed={"length": "completion_tokens"},
        texts=["text"],
        candidate="candidate_id",
    ),
    "critiques": RowTable(
        stored=_columns(Critique),
        key="critique_id",
        computed={"length": "length(text)"},
        texts=["text"],
        candidate="candidate_id",
    ),
    "grades": RowTable(
        stored=_columns(Grade),
        key="grade_id",
        computed={
            "length": "length(rationale)",
            "unscored": "status not in ('scored', 'not_applicable')",
        },
        texts=["rationale", "type_rationale"],
    ),
    # The reward and the length are the chosen answer's, the ratings the rejected one's.
    "pairs": RowTable(
        stored=_columns(Pair),
        key="pair_id",
        computed={
            "length": f"length({_contents('chosen')})",
            "reward": "chosen_reward",
            "margin": "chosen_reward - rejected_reward",
        },
        texts=[_contents(name) for name in ("prompt", "chosen", "rejected")],
        candidate="rejected_id",
    ),
}
