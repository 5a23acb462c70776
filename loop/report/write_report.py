"""Writing a report: into the run's folder, or to a path of the user's."""

import io
from collections.abc import Mapping
from pathlib import Path

from ...stores.durable import make_folder, write_file
from ...stores.lake import RunReader
from ...stores.outputs import output_file, output_files
from ...stores.targets import TargetError, file_target, folder_target
from ..evaluation.plots import require_matplotlib, svg_file
from .report_page import MARK
from .run_report import Report, run_report

FOLDER, PAGE = "report", "report.html"
HEAD = 2000
"""A report is recognised by its first bytes, at most so many."""


def write_run_report(
    run: RunReader, state: str, *, output: Path | None, plots: Path | None, force: bool
) -> Path:
    """Write the report of a run, by default into its folder; return the path of its page.

    Raises:
        FormError: if Matplotlib is not installed.
        TargetError: if a place cannot be written, or something else is there and not `force`.
    """
    require_matplotlib("a report")
    check_places(output, plots, force=force)
    page = output or report_folder(run.folder) / PAGE
    found = run_report(run, state)
    if output is None:
        keep_report(found, page.parent)
    else:
        output_report(found, output, force=force)
    if plots is not None:
        output_plots(found, plots, force=force)
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


def report_folder(run: Path) -> Path:
    """Return the folder of a run for its report; it is made if it is not there.

    Raises:
        TargetError: if it cannot be.
    """
    try:
        return make_folder(run / FOLDER)
    except OSError as error:
        raise _elsewhere(run / FOLDER, error) from error


def keep_report(report: Report, folder: Path) -> None:
    """Write a report and its plots into their folder.

    Raises:
        TargetError: if it cannot be written.
    """
    try:
        for name, data in {**plot_files(report), PAGE: report.html.encode()}.items():
            write_file(folder / name, data)
    except OSError as error:
        raise _elsewhere(folder, error) from error


def _elsewhere(folder: Path, error: OSError) -> TargetError:
    return TargetError(
        f"{folder} cannot be written ({error.strerror}): name another place with -o FILE"
    )


def output_report(report: Report, target: Path, *, force: bool) -> None:
    """Write the page of a report to `target`; an earlier report is replaced.

    Raises:
        TargetError: if it cannot be written, or something else is there and not `force`.
    """
    output_file(target, report.html.encode(), force=force or _is_report(target))


def output_plots(report: Report, folder: Path, *, force: bool) -> None:
    """Write each plot as SVG, and its rows as Parquet, into a new folder.

    Raises:
        TargetError: if it cannot be made, or is there already and not `force`.
    """
    output_files(folder, plot_files(report), force=force)


def plot_files(report: Report) -> Mapping[str, bytes]:
    """Return the files of a report's plots by their names: of those that have rows."""
    found: dict[str, bytes] = {}
    for each in report.plots:
        if each.panels:
            rows = io.BytesIO()
            each.plot.rows.write_parquet(rows)
            found[f"{each.plot.name}.svg"] = svg_file(each.panels)
            found[f"{each.plot.name}.parquet"] = rows.getvalue()
    return found


def _is_report(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return f'content="{MARK}"'.encode() in file.read(HEAD)
    except OSError:
        return False
