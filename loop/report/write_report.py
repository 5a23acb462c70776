"""Writing a report: into the run's folder, or to a path of the user's."""

import io
from collections.abc import Mapping
from pathlib import Path

from ...stores.durable import make_folder, write_file
from ...stores.lake import RunReader
from ...stores.outputs import TargetError, file_target, folder_target, output_file, output_files
from ..evaluation.plots import plot_bytes, require_libraries
from .run_report import MARK, Report, run_report

FOLDER, PAGE = "report", "report.html"
HEAD = 2000
"""A report is recognised by its first bytes, at most so many."""


def write_run_report(
    run: RunReader, state: str, *, output: Path | None, plots: Path | None, force: bool
) -> Path:
    """Write the report of a run, by default into its folder; return the path of its page.

    `plots` is a new folder for each section's plots as SVG, and their rows as Parquet.

    Raises:
        FormError: if Matplotlib or Jinja2 is not installed.
        TargetError: if a place cannot be written, or something else is there and not `force`.
    """
    require_libraries("a report", "matplotlib", "jinja2")
    check_places(output, plots, force=force)
    page = output or _own_folder(run.folder) / PAGE
    found = run_report(run, state)
    if output is None:
        try:
            write_file(page, found.html.encode())
        except OSError as error:
            raise _elsewhere(page, error) from error
    else:
        output_report(found, output, force=force)
    if plots is not None:
        output_files(plots, _plot_files(found), force=force)
    return page


def check_places(page: Path | None, plots: Path | None, *, force: bool) -> None:
    """Check before any work that a report's page and plots may go there.

    Raises:
        TargetError: if one may not.
    """
    for place in filter(None, (page, plots)):
        if not place.absolute().parent.is_dir():
            raise TargetError(
                f"{place} cannot be written: the folder that is to hold it is missing"
            )
    if page is not None:
        file_target(page, force=force or _is_report(page))
    if plots is not None:
        folder_target(plots, force=force)


def output_report(report: Report, target: Path, *, force: bool) -> None:
    """Write the page of a report to `target`; an earlier report is replaced.

    Raises:
        TargetError: if it cannot be written, or something else is there and not `force`.
    """
    output_file(target, report.html.encode(), force=force or _is_report(target))


def _own_folder(run: Path) -> Path:
    try:
        return make_folder(run / FOLDER)
    except OSError as error:
        raise _elsewhere(run / FOLDER, error) from error


def _elsewhere(place: Path, error: OSError) -> TargetError:
    return TargetError(
        f"{place} cannot be written ({error.strerror}): name another place with -o FILE"
    )


def _plot_files(report: Report) -> Mapping[str, bytes]:
    """Return the files of a report's plots by their names: of those that have rows."""
    found: dict[str, bytes] = {}
    for section in report.sections:
        if section.panels:
            found[f"{section.name}.svg"] = plot_bytes(section.panels, ".svg")
        for name, table in section.tables.items():
            if table.height:
                rows = io.BytesIO()
                table.write_parquet(rows)
                found[f"{name}.parquet"] = rows.getvalue()
    return found


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return f'content="{MARK}"'.encode() in file.read(HEAD)
    except OSError:
        return False
