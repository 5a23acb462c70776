"""People's ratings of an iteration's candidates: imported into the run, or given by hand.

New ratings by hand are read first. If pairs exist already, new ratings discard them and the pairs
are made again, unless a model was trained on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from ...stores.frames import as_frame, empty
from ...stores.records import Critique
from ..data.judged_candidates import READ
from ..lake.annotations.bring_in import bring_in
from ..run.iteration import Iteration
from ..run.run import Work
from .judgement_kinds import is_import
from .retry_unscored import trained_on

LATE = (
    "people's ratings that were imported after iteration {} was trained are not used for it; "
    "`lpfloop rebuild-pairs` makes pairs of them"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanRatings:
    """The units that hold people's ratings of an iteration, by their keys."""

    it: Iteration
    keys: Sequence[str]

    def frame(self) -> pl.DataFrame:
        """Return their rows in the columns that pairing reads."""
        store = self.it.run.store
        tables = [as_frame(store.table(Critique, key)) for key in self.keys]
        return pl.concat([empty("critiques"), *tables]).select(READ["critiques"])

    def read_by(self, work: Work) -> Work:
        """Return the work of a stage each of whose units also depends on all of these ratings."""
        return replace(
            work,
            upstream=(*work.upstream, *self.keys),
            reads=lambda: [(*keys, *self.keys) for keys in work.reads()],
        )


def human_ratings(it: Iteration, label: str) -> HumanRatings:
    """Return the ratings that the stage `label` reads, before that stage is planned or resumed.

    If the ratings differ from the planned ones, the stage and everything made from it are
    discarded.
    """
    journal = it.run.store.journal
    bring_in(it.run.store)
    parts = [p for p in journal.parts(table="critiques", iteration=it.number) if is_import(p.stage)]
    imports = [part.stage for part in parts if part.rows]
    names = [state.stage for state in journal.stages() if state.iteration == it.number]
    if label in names and any(names.index(name) > names.index(label) for name in imports):
        if trained_on(journal, it.number, label):
            it.run.reporter.note(LATE.format(it.number), "warning", code="W-LATE-RATINGS")
            imports = [name for name in imports if names.index(name) < names.index(label)]
        else:
            it.run.store.when_there_is_room(lambda: journal.forget(it.number, label))
    return HumanRatings(it=it, keys=[part.unit for part in parts if part.stage in imports])
