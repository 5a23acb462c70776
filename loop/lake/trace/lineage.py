"""What a row comes from and leads to, from the prompt's source to evaluated checkpoints.

Edges lead from cause to effect: upwards follows them backwards, downwards forwards. Upwards from a
checkpoint shows only its parents, as it was trained on all pairs of an iteration, which are counted
and not listed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ....stores.lake import RunReader
from ....stores.records import (
    Candidate,
    Checkpoint,
    Critique,
    Demonstration,
    Distillation,
    Evaluation,
    Grade,
    Pair,
    Preference,
    UnpairedAnswer,
)
from ...data.pairs import BY_REWARD
from ...data.training_rows import made_by
from ..query.model_names import checkpoints, step_policies
from .checkpoint_story import evaluated, trained_on
from .find_row import Found
from .grade_story import by_grades, grades_of
from .graph import SHORT, Edge, Lineage, Node, reached
from .story import Story, prompt_story

Learned = Pair | Demonstration | Distillation | UnpairedAnswer
"""A row to train on."""
TRAINED = "trained on"
SAMPLED = "sampled by"


def lineage(run: RunReader, found: Found) -> Lineage:
    """Return what an id comes from, and what it led to."""
    made = [*checkpoints(run), *step_policies(run)]
    graph = _Graph({}, [])
    graph.add(_models(run, made))
    if found.kind == "checkpoint":
        graph.add(_counts(run, next(c for c in made if c.checkpoint_id == found.id)))
    else:
        graph.add(_told(prompt_story(run, found)))
    return graph.about(run.folder.name, found.id)


@dataclass(frozen=True, slots=True)
class _Graph:
    """Nodes by id, and edges between them."""

    nodes: dict[str, Node]
    edges: list[Edge]

    def add(self, things: Iterator[Node | Edge]) -> None:
        for thing in things:
            if isinstance(thing, Node):
                self.nodes.setdefault(thing.id, thing)
            else:
                self.edges.append(thing)

    def about(self, run: str, root: str) -> Lineage:
        """Return what is above and below `root`."""
        known = [e for e in self.edges if e.source in self.nodes and e.target in self.nodes]
        up = [e for e in known if e.relation != TRAINED or e.target == root]
        down = [e for e in known if e.relation != SAMPLED]
        kept = [*reached(up, root, up=True), *reached(down, root, up=False)]
        edges = tuple(dict.fromkeys(kept))
        ids = dict.fromkeys([root, *(i for e in edges for i in (e.source, e.target))])
        return Lineage(run=run, root=root, nodes=tuple(self.nodes[i] for i in ids), edges=edges)


def _models(run: RunReader, made: Sequence[Checkpoint]) -> Iterator[Node | Edge]:
    """Yield the checkpoints with their parents and evaluations."""
    for row in made:
        label = f"{row.name}, recipe {row.recipe}, {row.steps} steps"
        yield Node(id=row.checkpoint_id, kind="checkpoint", label=label)
        if row.parent_id is not None:
            yield Edge(source=row.parent_id, target=row.checkpoint_id, relation="trained from")
    numbers: dict[tuple[str, str], list[Evaluation]] = {}
    for row in evaluated(run):
        numbers.setdefault((row.checkpoint_id, row.benchmark), []).append(row)
    for (checkpoint, benchmark), rows in numbers.items():
        identity = f"{benchmark}:{checkpoint[:SHORT]}"
        figures = ", ".join(
            f"{e.metric} {e.value:.3f}" for e in rows if not e.metric.startswith("rating:")
        )
        yield Node(id=identity, kind="evaluation", label=f"{benchmark}: {figures}")
        yield Edge(source=checkpoint, target=identity, relation="evaluated")


def _counts(run: RunReader, checkpoint: Checkpoint) -> Iterator[Node | Edge]:
    """Yield counts of what a checkpoint was trained on."""
    for row in trained_on(run, checkpoint):
        identity = f"{row.table}:{checkpoint.iteration}:{row.rule}:{row.task}:{row.kind}"
        label = (
            f"{row.rows} {row.table} of iteration {checkpoint.iteration} by {row.rule}: "
            f"task {row.task}, {row.kind}"
        )
        yield Node(id=identity, kind=row.table, label=label)
        yield Edge(source=identity, target=checkpoint.checkpoint_id, relation=TRAINED)


def _told(story: Story) -> Iterator[Node | Edge]:
    """Yield a prompt, its candidates, their judgments and what was made from them."""
    prompt = story.prompt
    source = f"source {prompt.source}"
    yield Node(id=source, kind="source", label=prompt.source)
    yield Node(id=prompt.prompt_id, kind="prompt", label=f"{prompt.task}, {prompt.split}")
    yield Edge(source=source, target=prompt.prompt_id, relation="read from")
    rewards = {r.candidate_id: r.score for r in story.rewards}
    for candidate in story.candidates:
        yield from _candidate(candidate, rewards.get(candidate.candidate_id))
    for critique in story.critiques:
        yield from _critique(critique)
    for preference in story.preferences:
        yield from _preference(preference)
    for grade in story.grades:
        yield from _grade(grade)
    trained = {c.iteration: c.checkpoint_id for c in story.checkpoints if c.parent_id}
    for row in (
        *story.pairs,
        *story.demonstrations,
        *story.distillations,
        *story.unpaired_answers,
    ):
        yield from _made_of(row)
        yield from _judged(story, row)
        if row.iteration in trained:
            yield Edge(source=_id(row), target=trained[row.iteration], relation=TRAINED)
    yield from _derived(story)


def _derived(story: Story) -> Iterator[Node | Edge]:
    """Yield the rows of derived tables on the prompt's candidates, with their tables."""
    for table in story.derived:
        identity = f"derived:{table.name}"
        yield Node(id=identity, kind="derived", label=f"table {table.name}")
        for row in (*table.pairs, *table.demonstrations, *table.unpaired_answers):
            yield from _made_of(row)
            yield from _judged(story, row)
            yield Edge(source=_id(row), target=identity, relation="kept in")


def _candidate(row: Candidate, reward: float | None) -> Iterator[Node | Edge]:
    identity = row.candidate_id
    label = f"{row.kind}, iteration {row.iteration}"
    if reward is not None:
        label += f", reward {reward:.3f}"
    yield Node(id=identity, kind="candidate", label=label)
    yield Edge(source=row.prompt_id, target=identity, relation="answered")
    yield Edge(source=row.policy, target=identity, relation=SAMPLED)
    if row.parent_id is not None:
        relation = "refined" if row.kind == "refinement" else "chosen from"
        yield Edge(source=row.parent_id, target=identity, relation=relation)
    if row.critique_id is not None:
        yield Edge(source=row.critique_id, target=identity, relation="reflected on")


def _critique(row: Critique) -> Iterator[Node | Edge]:
    ratings = ", ".join(f"{a.name} {a.rating}" for a in row.aspects) or row.status
    yield Node(id=row.critique_id, kind="critique", label=ratings)
    yield Edge(source=row.candidate_id, target=row.critique_id, relation="criticised")
    yield from _shared(row.same_as, row.critique_id)


def _preference(row: Preference) -> Iterator[Node | Edge]:
    label = f"{row.annotator}: {row.preferred or row.status}"
    yield Node(id=row.preference_id, kind="preference", label=label)
    yield Edge(source=row.first_id, target=row.preference_id, relation="compared")
    yield Edge(source=row.second_id, target=row.preference_id, relation="compared")


def _grade(row: Grade) -> Iterator[Node | Edge]:
    said = row.status if row.rating is None else f"{row.rating:g}"
    yield Node(id=row.grade_id, kind="grade", label=f"{row.aspect} {said}")
    yield Edge(source=row.candidate_id, target=row.grade_id, relation="graded")
    yield from _shared(row.same_as, row.grade_id)


def _shared(asked: str | None, identity: str) -> Iterator[Edge]:
    """Yield how a judgement comes from the reply about an equal answer, if it does."""
    if asked is not None:
        yield Edge(source=asked, target=identity, relation="says the same")


def _made_of(row: Learned) -> Iterator[Node | Edge]:
    """Yield a row to train on, and its candidates."""
    identity = _id(row)
    if isinstance(row, Distillation):
        label = f"rule {row.rule}, iteration {row.iteration}"
        yield Node(id=identity, kind="distillation", label=label)
        yield Edge(source=row.candidate_id, target=identity, relation="distilled")
        return
    if isinstance(row, UnpairedAnswer):
        label = f"rule {row.rule}, iteration {row.iteration}"
        yield Node(id=identity, kind="unpaired answer", label=label)
        relation = "a success" if row.label else "a failure"
        yield Edge(source=row.candidate_id, target=identity, relation=relation)
        return
    label = f"rule {row.rule}, rank {row.rank}, iteration {row.iteration}"
    if isinstance(row, Pair):
        yield Node(id=identity, kind="pair", label=label)
        yield Edge(source=row.chosen_id, target=identity, relation="chosen")
        yield Edge(source=row.rejected_id, target=identity, relation="rejected")
    else:
        yield Node(id=identity, kind="demonstration", label=label)
        yield Edge(source=row.candidate_id, target=identity, relation="shown")


def _judged(story: Story, row: Learned) -> Iterator[Edge]:
    """Yield the critiques or grades that decided a pair."""
    sides = _candidates(row)
    if by_grades(row.rule):
        for side in sides:
            for grade in grades_of(story, side):
                yield Edge(source=grade.grade_id, target=_id(row), relation="judged")
        return
    for critique in story.critiques:
        if critique.candidate_id in sides and made_by(row.rule) not in BY_REWARD:
            yield Edge(source=critique.critique_id, target=_id(row), relation="judged")


def _candidates(row: Learned) -> tuple[str, ...]:
    return (row.chosen_id, row.rejected_id) if isinstance(row, Pair) else (row.candidate_id,)


def _id(row: Learned) -> str:
    if isinstance(row, Distillation):
        return row.distillation_id
    if isinstance(row, UnpairedAnswer):
        return row.unpaired_id
    return row.pair_id if isinstance(row, Pair) else row.demonstration_id
