"""The smoke test alone, in a lake that is removed afterwards: `lpfloop doctor --smoke`."""

from pathlib import Path
from tempfile import TemporaryDirectory

from ...configs.schema import RunConfig, SmokeConfig
from ..run.reporter import Reporter
from ..run.stop import StopSignal
from ..run.unread_replies import UnreadRepliesError
from ..stages.train import keep_initial
from .eval_sets import order_prompts
from .hardware import disk
from .iterations import try_smoke_test
from .job import Job
from .loop import required_prompts
from .opening import open_job

NAME = "smoke"


def smoke_alone(config: RunConfig, lake: Path, reporter: Reporter, stop: StopSignal) -> None:
    """Make the smoke test of a run, also if the run itself would skip it.

    Raises:
        UnreadRepliesError: if no answer is whole, or a judge's replies mostly cannot be read.
        TrainingError: if a model cannot be trained.
    """
    smoke = config.smoke if config.smoke.prompts else SmokeConfig(train=config.smoke.train)
    config = config.model_copy(update={"smoke": smoke})
    prompts = required_prompts(config, lake)
    # Next to the lake: a step of training needs as much room as there, which /tmp may not have.
    with TemporaryDirectory(prefix="lpfloop-smoke-", dir=disk(lake).folder) as folder:
        job = Job(config=config, lake=Path(folder), name=NAME, beside=lake)
        with open_job(job, prompts, reporter, stop) as run:
            try:
                try_smoke_test(run, keep_initial(run), order_prompts(prompts, "train", config.seed))
            except UnreadRepliesError as error:
                raise UnreadRepliesError(error.message) from error
