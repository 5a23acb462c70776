"""`lpfloop init`: write the configuration of a first run, from three answers or from options."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...stores.address import DEFAULT_LAKE
from ..daemon.run_request import OWN, TINY, VERIFIER, RunOptions, critic_overrides, model_folder
from ..lake.query.forms import FormError
from .options import Lake, Replace

if TYPE_CHECKING:
    from ...configs.schema import RunConfig


NAME = "lpfloop.yaml"
POLICY = "Which model shall be improved? A folder, a name on the Hugging Face hub, or tiny"
PROMPTS = "On which prompts? A file (JSONL, CSV, Parquet), a folder, hf:OWNER/NAME, or tiny"
CRITIC = "Who judges its answers? The URL of an endpoint, a folder, a name on the hub, or tiny"


def init(
    target: Annotated[
        Path,
        typer.Argument(help=f"File to write, or the folder for {NAME}.", metavar="FILE|FOLDER"),
    ] = Path(NAME),
    *,
    options: Annotated[RunOptions, "policy prompts critic recipe settings"],
    force: Replace = False,
    lake: Lake = DEFAULT_LAKE,
) -> None:
    """Write the configuration of a first run.

    It asks for a model, prompts and a critic where the options name none. Nothing is started.
    """
    from ...stores.outputs import file_target, output_file
    from ..run.terminal import say

    file = target if target.suffix in {".yaml", ".yml"} else target / NAME
    if file.parent.is_dir():
        file_target(file, force=force)
    options = replace(
        options,
        policy=_answer("--policy", options.policy, POLICY, _model(lake, "policy")),
        prompts=_answer("--prompts", options.prompts, PROMPTS, _prompts),
        critic=_answer("--critic", options.critic, CRITIC, _model(lake, "critic")),
    )
    text, config = _draft(_lasting(options, file), file, lake)
    file.parent.mkdir(parents=True, exist_ok=True)
    output_file(file, text.encode(), force=force)
    typer.echo(str(file))
    say(_next(config, file))


def _answer(option: str, given: str | None, question: str, checked: Callable[[str], str]) -> str:
    """Return an option's value, or a person's answer, asked for until it is valid.

    Raises:
        FormError: if it is missing and input is not a terminal.
    """
    from ...configs.schema import ConfigError
    from ..data.files import InputError
    from ..run.terminal import say

    if given is not None:
        try:
            return checked(given)
        except (ConfigError, InputError) as error:
            raise FormError(f"{option} {error}") from error
    if not sys.stdin.isatty():
        raise FormError(
            f"{option} is missing, and lpfloop cannot ask without a terminal. {question}"
        )
    while True:
        typer.echo(f"{question}: ", nl=False, err=True)
        line = sys.stdin.readline()
        if not line:
            raise FormError(f"{option} was not answered; nothing was written")
        try:
            return checked(line.strip())
        except (ConfigError, InputError) as error:
            say(f"error {error.code}: {error}")


def _prompts(answer: str) -> str:
    from ..daemon.run_draft import check_prompts

    check_prompts(answer)
    return answer


def _model(lake: Path, role: str) -> Callable[[str], str]:
    def checked(answer: str) -> str:
        from ..daemon.run_draft import check_model

        place = model_folder(lake, role, answer) or answer
        if (role, place) != ("critic", VERIFIER):
            check_model(place)
        return place

    return checked


def _lasting(options: RunOptions, file: Path) -> RunOptions:
    """Return the options with places that are right for a file in another folder, too."""
    if file.absolute().parent == Path().absolute():
        return options
    policy, prompts, critic = (
        str(Path(place).absolute()) if place is not None and Path(place).exists() else place
        for place in (options.policy, options.prompts, options.critic)
    )
    return replace(options, policy=policy, prompts=prompts, critic=critic)


def _draft(options: RunOptions, file: Path, lake: Path) -> "tuple[str, RunConfig]":
    """Return the text of the file, and the configuration that it makes."""
    from ...configs.load import load_config, overrides_given
    from ...configs.show import starter
    from ..daemon.job import Job
    from ..daemon.run_draft import check_draft

    preset = TINY if {options.policy, options.prompts, options.critic} == {TINY} else OWN
    config = load_config(preset, options.recipe, options.overrides, {})
    check_draft(Job(config=config, lake=lake, name=file.stem))
    overrides = [*critic_overrides(options.critic), *overrides_given(options.settings)]
    chosen = [override.path for override in overrides]
    return starter(config, preset, str(file), chosen), config


def _next(config: "RunConfig", file: Path) -> str:
    from ..daemon.run_draft import absent_names

    absent = [name.written for name in absent_names(config)]
    fetch = " --download" if absent else ""
    written = shlex.quote(str(file))
    first = f"next: `lpfloop run --config {written}{fetch} --dry-run` shows what it would do"
    also = f"; it fetches {', '.join(absent)}" if absent else ""
    return f"{first}{also}\n`lpfloop run --config {written}` starts it"
