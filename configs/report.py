"""Whether a run writes its report while it goes on."""

from .section import Section, cosmetic


class ReportConfig(Section):
    """A page on the run, which `lpfloop report` writes at any time."""

    each_iteration: bool = cosmetic(
        default=True, description="write it after each iteration, in a process beside the run"
    )
