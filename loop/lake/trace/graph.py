"""A lineage as nodes and edges, and its drawing as a tree, with control characters escaped."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ...data.sanitize import one_line
from .find_row import COLUMNS
from .html_page import safe

LABEL = 300
SHORT = 24
"""How many characters of an id are drawn: enough to use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A row, or a group of rows; `label` describes it in a few words."""

    id: str
    kind: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """`source` led to `target`, by `relation`."""

    source: str
    target: str
    relation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Everything above and below one id in its run."""

    run: str
    root: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def node(self, identity: str) -> Node:
        """Return a node by its id."""
        return next(node for node in self.nodes if node.id == identity)

    @property
    def rows(self) -> pl.DataFrame:
        """The edges as rows."""
        rows = [
            (e.source, self.node(e.source).kind, e.relation, e.target, self.node(e.target).kind)
            for e in self.edges
        ]
        names = ("source", "source_kind", "relation", "target", "target_kind")
        return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")

    def __str__(self) -> str:
        return lineage_text(self)

    def _repr_html_(self) -> str:
        return f"<pre>{safe(str(self))}</pre>"


def reached(edges: Sequence[Edge], root: str, *, up: bool) -> list[Edge]:
    """Return the edges above or below `root`, the nearest first."""
    leaving: dict[str, list[Edge]] = {}
    for edge in edges:
        leaving.setdefault(edge.target if up else edge.source, []).append(edge)
    found: list[Edge] = []
    seen, todo = {root}, [root]
    for identity in todo:
        for edge in leaving.get(identity, ()):
            found.append(edge)
            other = edge.source if up else edge.target
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return found


def print_lineage(lineage: Lineage, console: Console | None = None) -> None:
    """Print a lineage: first upwards, then downwards."""
    console = console or Console()
    tree = Tree(_line(lineage, lineage.root, ""))
    for up, heading in ((True, "comes from"), (False, "led to")):
        branch = tree.add(Text(heading, style="bold"))
        _grow(lineage, branch, lineage.root, up=up, seen={lineage.root})
        if not branch.children:
            branch.add(Text("nothing"))
    console.print(tree)


def lineage_text(lineage: Lineage, width: int = 120) -> str:
    """Return a lineage as plain text."""
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as captured:
        print_lineage(lineage, console)
    return captured.get()


def _grow(lineage: Lineage, branch: Tree, identity: str, *, up: bool, seen: set[str]) -> None:
    """Add a node's neighbours on one side; a node drawn before is only named."""
    for edge in _next(lineage, identity, up=up):
        other = edge.source if up else edge.target
        again = other in seen
        seen.add(other)
        node = branch.add(_line(lineage, other, f"{edge.relation}: ", again=again))
        if not again:
            _grow(lineage, node, other, up=up, seen=seen)


def _next(lineage: Lineage, identity: str, *, up: bool) -> list[Edge]:
    return [e for e in lineage.edges if identity == (e.target if up else e.source)]


def _line(lineage: Lineage, identity: str, relation: str, *, again: bool = False) -> Text:
    node = lineage.node(identity)
    label = "see above" if again else node.label
    name = f" {identity[:SHORT]}" if node.kind in COLUMNS else ""
    return Text(one_line(f"{relation}{node.kind}{name}: {label}", limit=LABEL))
