"""A run's results, verdicts, checks, lists and exports, as methods.

Each method works like the command of its name, with the options of the same names.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import polars as pl

from ...stores.derived import derived_names
from ...stores.records import Scope, Split
from ..daemon.evaluate_run import named_groups, run_groups
from ..daemon.status import daemon_of, overview
from ..evaluation.comparison import compared_runs
from ..evaluation.critic_answers import AnswerDraw
from ..evaluation.critic_check import figures
from ..evaluation.critic_report import distributions as distributed
from ..evaluation.critic_report import figures_frame
from ..evaluation.ranking_agreement import ranking_agreement
from ..lake.exports.export import Export, Exported, export_table
from ..lake.query.alarm_list import alarm_rows
from ..lake.query.model_figures import results_by
from ..lake.query.model_names import PUBLISHED, checkpoints, model_of
from ..lake.query.run_verdicts import RunVerdict, run_verdict
from ..lake.search.text_search import TextSearch, search
from ..lake.trace.model_page import list_models
from ..lake.trace.published_model import PublishedModel, copy_model, published_model
from ..report.write_report import write_run_report
from .table_frames import RunTables


class RunMeasures(RunTables):
    """A run's results, verdicts, checks, lists and exports."""

    def status(self, iteration: int | None = None) -> dict[str, Any]:
        """Return the content of `lpfloop status --json`, except the results."""
        return overview(self._reader, iteration)

    def results(self, *, split: str | None = None, by: Scope = "task") -> pl.DataFrame:
        """Return the figures of every model with their changes since the first, one row each.

        `by` is task, family, source or eval set; `split` is dev, held-out or the name of a set of
        held-out prompts, by default the split of `lpfloop status`.

        Raises:
            NotMeasuredError: if that split was not measured.
        """
        return results_by(self._reader, by, split).frame

    def verdict(self) -> RunVerdict:
        """Return the verdict on the run's policies; its text is the output of `lpfloop verdict`.

        Raises:
            NoSuchRunError: if the run is without verdicts.
        """
        return run_verdict(self._reader, checkpoints(self._reader))

    def compare(
        self,
        *others: str,
        by_method: bool = False,
        against: str | None = None,
        rank_with: Sequence[str] = (),
        metric: str = "win_rate",
        task: str | None = None,
    ) -> pl.DataFrame:
        """Compare the run with others of its lake: a row each, after those they began with.

        With `rank_with`, the rows are methods, ranked by a metric in these runs and in those; each
        has Spearman's correlation of the two rankings.

        Raises:
            NoSuchRunError: if one does not exist, or has measured nothing.
            FormError: if `against` is not in the comparison, or fewer methods than needed are
                ranked.
        """
        names = [self.name, *others]
        if rank_with:
            return ranking_agreement(self.lake, names, rank_with, metric=metric, task=task).frame
        return compared_runs(self.lake, names, together=by_method, against=against, task=task).frame

    def critic_check(
        self,
        *,
        by: str = "task",
        split: Split | None = None,
        limit: int = 2000,
        distributions: bool = False,
        seed: int = 0,
    ) -> pl.DataFrame:
        """Measure how well the critic tells right answers from wrong ones, without asking a model.

        Raises:
            FormError: if a group does not exist.
            ConfigError: if a file of the user has changed.
        """
        draw = AnswerDraw(by=named_groups(by), split=split, limit=limit, seed=seed)
        groups = run_groups(self._reader, draw)
        if distributions:
            return distributed(groups)
        return figures_frame([figures(one) for one in groups])

    def alarms(self, iteration: int | None = None, *, limit: int | None = None) -> pl.LazyFrame:
        """Return the signs that the run learns to please its judge, the newest first."""
        rows = alarm_rows(self._reader, iteration)
        return rows if limit is None else rows.head(limit)

    def search(
        self,
        text: str,
        *,
        table: Literal["critiques", "candidates", "prompts"] = "critiques",
        iteration: int | None = None,
        task: str | None = None,
        limit: int = 20,
    ) -> pl.DataFrame:
        """Find rows of the run by words.

        Raises:
            InputError: if the query cannot be parsed.
            IndexUnusableError: if the lake does not have an index for this query.
        """
        query = TextSearch(
            text=text,
            table=table,
            run=self.name,
            iteration=iteration,
            task=task,
            limit=limit,
        )
        return search(self.lake, query)

    def model(self, which: str = PUBLISHED) -> PublishedModel:
        """Return a model of the run: `M_2`, `latest`, `best`, or a checkpoint's id.

        The default is the best model that the loop keeps, or the latest if it has no verdicts.

        Raises:
            NoSuchRunError: if the run does not have this model.
            NoSuchFigureError: if no figure was measured by which to choose the best.
        """
        return published_model(self._reader, model_of(self._reader, which))

    def models(self) -> pl.DataFrame:
        """Return all models of the run, one row each, with the figure that compares them."""
        return list_models(self._reader)[0]

    def copy_model(self, copy: str | Path, which: str = PUBLISHED, *, force: bool = False) -> Path:
        """Copy a model to the new folder `copy`, every byte compared; return the folder.

        Raises:
            DamagedError: if it is damaged.
            NoSuchRunError: if the run does not have this model.
            TargetError: if the folder is there already, or cannot be made.
        """
        target = Path(copy)
        copy_model(self._reader, model_of(self._reader, which), target, force=force)
        return target

    def export(
        self,
        table: str,
        *,
        format: str,  # noqa: A002 -- as the option is called
        output: str | Path,
        iteration: int | None = None,
        derived: str | None = None,
        license: str | None = None,  # noqa: A002 -- as the option is called
        force: bool = False,
    ) -> Exported:
        """Write a table in a trainer's or viewer's format, with a card, to a new folder.

        Raises:
            ConfigError: if the format does not fit the table, or the table is empty.
            TargetError: if the folder is there already, or cannot be made.
        """
        job = Export(
            lake=self.lake,
            name=self.name,
            table=table,
            form=format,
            target=Path(output),
            iteration=iteration,
            derived=derived,
            license=license,
            force=force,
        )
        return export_table(job)

    def report(
        self,
        *,
        output: str | Path | None = None,
        plots: str | Path | None = None,
        force: bool = False,
    ) -> Path:
        """Write the page with the run's results and plots, and return its path.

        The default path is in the run's folder; `plots` is a folder for each plot and its rows.

        Raises:
            FormError: if Matplotlib is not installed.
            TargetError: if a place cannot be written, or something else is there.
        """
        return write_run_report(
            self._reader,
            daemon_of(self._reader.journal).state,
            output=None if output is None else Path(output),
            plots=None if plots is None else Path(plots),
            force=force,
        )

    def derived(self) -> list[str]:
        """Return the names of the run's derived tables."""
        return derived_names(self.folder)
