"""What a run would do, before it does anything: its plan, and its requests as they are sent."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..daemon.job import Job


def refuse_json(*, as_json: bool, dry_run: bool) -> None:
    """Refuse `--json` where there is no document to print."""
    from ...configs.schema import ConfigError

    if as_json and not dry_run:
        raise ConfigError("--json prints a plan: add --dry-run, or read `lpfloop status --json`")


def print_plan(job: "Job", *, as_json: bool) -> None:
    """Print the plan of a run, without beginning it."""
    from ...configs.secrecy import hide_environment, hide_secrets_of
    from ..daemon.plan_lines import plan_lines
    from ..daemon.planning import dry_plan
    from ..run.terminal import say
    from .tables import print_json

    hide_environment()
    hide_secrets_of(job.config)
    plan = dry_plan(job)
    if as_json:
        print_json(plan.as_json())
        return
    for line in plan_lines(plan):
        say(line)
