"""The options that commands share, and the objects that commands get for them.

A parameter `out: Annotated[Output, "as_json form"]` stands for the options of these fields, and
`options: Annotated[RunOptions, "config recipe"]` for those that describe a run: `with_options`
replaces it by them.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ...stores.address import AddressError, lake_folder
from ..daemon.run_request import RunOptions
from ..lake.query.forms import Form

if TYPE_CHECKING:
    import polars as pl

Command = Callable[..., None]


def run_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the runs of the lake that the command line names, for the shell to complete.

    A shell asks at each press of the Tab key: nothing but names of folders is read.
    """
    lake = ctx.params.get("lake")
    folder = (lake if isinstance(lake, Path) else Path("lake")) / "runs"
    with suppress(OSError):
        return _beginning(
            sorted(path.name for path in folder.iterdir() if path.is_dir()), incomplete
        )
    return []


def _recipe_names(incomplete: str) -> list[str]:
    from ...configs.recipe_names import recipe_classes

    return _beginning(recipe_classes(), incomplete)


def preset_names(incomplete: str) -> list[str]:
    """Return the shipped presets, and the YAML files of this folder."""
    from ...configs.read import presets

    found = presets()
    with suppress(OSError):
        found += sorted(path.name for path in Path().glob("*.y*ml"))
    return _beginning(found, incomplete)


def _field_names(incomplete: str) -> list[str]:
    from ...configs.describe import settable

    return _beginning((f"{field.path}=" for field in settable() if not field.secret), incomplete)


def live_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the words that may follow `ctl`: a run, an action, then the live fields."""
    words: list[str] = ctx.params.get("words") or []
    action = next((word for word in words if word in {"get", "set"}), None)
    if action is None:
        return [*_beginning(("get", "set"), incomplete), *run_names(ctx, incomplete)]
    from ...configs.describe import settable

    end = "=" if action == "set" else ""
    live = (f"{field.path}{end}" for field in settable() if field.effect == "live")
    return _beginning(live, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _iteration(text: str | int) -> int:
    """Read `2` or `M_2`."""
    digits = str(text).removeprefix("M_").removeprefix("m_")
    if not (digits.isascii() and digits.isdecimal()):
        raise typer.BadParameter(
            f"{text} is not an iteration: give its number, or the model as M_2"
        )
    return int(digits)


def lake_of(place: str | Path) -> Path:
    """Read the place of a lake: a folder, or an address in a bucket."""
    try:
        return lake_folder(str(place))
    except AddressError as error:
        raise typer.BadParameter(str(error)) from error


Lake = Annotated[
    Path,
    typer.Option(
        "--lake",
        envvar="LPFLOOP_LAKE",
        parser=lake_of,
        metavar="PLACE",
        help="Folder that holds the runs, or s3://BUCKET/PREFIX.",
    ),
]
AnyRun = Annotated[
    str | None,
    typer.Argument(
        help="Name of the run; default: the latest.", metavar="RUN", autocompletion=run_names
    ),
]
OneIteration = Annotated[
    int | None,
    typer.Option("--iteration", parser=_iteration, metavar="T|M_T", help="Only this iteration."),
]
OneTask = Annotated[str | None, typer.Option("--task", help="Only prompts of this task.")]
DefaultTask = Annotated[
    str | None, typer.Option("--default-task", help="Task of rows that name none.")
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most N rows.")]
Derived = Annotated[
    str | None,
    typer.Option("--derived", help="Read this derived table, not the run's own rows."),
]
ByField = Annotated[
    str | None,
    typer.Option("--by", help="Group by this field of the rows, in addition to all of them."),
]
Layout = Annotated[
    str | None,
    typer.Option(
        "--as", help="Layout, or FILE.py:NAME that reads it; default: recognised by its fields."
    ),
]
Human = Annotated[
    list[str] | None,
    typer.Option("--human", help="Names of annotators that begin with this are people."),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Also draw a plot into this .svg, .png or .pdf file."),
]
Replace = Annotated[bool, typer.Option("--force", help="Replace existing output.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Set a field: section.key=value; can be repeated.",
        autocompletion=_field_names,
    ),
]

INPUTS, TRAINING, COMPARE, RESUME = "Inputs", "Training", "Compare", "Resume"
"""The panels of `lpfloop run --help`; other options are in the panel OUTPUT."""
OUTPUT = "Output"

Iterations = Annotated[
    int | None, typer.Option(min=0, help="Iterations to reach.", rich_help_panel=TRAINING)
]
RunName = Annotated[
    str | None,
    typer.Option(
        "--run", help="Name of the run.", autocompletion=run_names, rich_help_panel=RESUME
    ),
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Root of all random draws.", rich_help_panel=TRAINING)
]
RUN_OPTIONS = {
    "config": Annotated[
        str | None,
        typer.Option(
            "--config",
            help="Preset or YAML file.",
            autocompletion=preset_names,
            rich_help_panel=INPUTS,
        ),
    ],
    "recipe": Annotated[
        str | None,
        typer.Option(
            help="Recipe: `lpfloop config recipes` lists them.",
            autocompletion=_recipe_names,
            rich_help_panel=TRAINING,
        ),
    ],
    "iterations": Iterations,
    "prompts": Annotated[
        str | None,
        typer.Option(help="Prompts: file, folder or hf:OWNER/NAME.", rich_help_panel=INPUTS),
    ],
    "policy": Annotated[
        str | None,
        typer.Option(help="Policy: folder, hub name, URL or RUN:M_2.", rich_help_panel=INPUTS),
    ],
    "critic": Annotated[
        str | None,
        typer.Option(
            help="Critic: folder, hub name, URL, RUN:M_2, verifier or ./FILE.py:NAME.",
            rich_help_panel=INPUTS,
        ),
    ],
    "seed": Seed,
    "settings": Settings,
    "download": Annotated[
        bool,
        typer.Option(
            "--download",
            help="Download models and data that are not in the hub's cache.",
            rich_help_panel=INPUTS,
        ),
    ],
}
"""The options that describe a run, by the field of `RunOptions`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The requested format."""

    form: Form = Form.AUTO
    as_json: bool = False

    @property
    def is_table(self) -> bool:
        """Whether rows become a table for people.

        Raises:
            FormError: if two formats are requested, or Parquet on a terminal.
        """
        from ..lake.query.row_output import is_table

        return is_table(self.form, as_json=self.as_json)

    def rows(self, frame: "pl.DataFrame | pl.LazyFrame", columns: Sequence[str] = ()) -> None:
        """Write rows; a table for people has only `columns`, if given.

        Raises:
            FormError: if two formats are requested, or Parquet on a terminal.
            OutputError: if stdout cannot be written, such as on a full disk.
        """
        from ..lake.query.row_output import write_frame

        write_frame(frame, self.form, columns, as_json=self.as_json)

    def document(self, document: object, draw: Callable[[], None]) -> None:
        """Print a document as JSON, or `draw` it for people."""
        if self.as_json:
            typer.echo(json.dumps(document, ensure_ascii=True, indent=1))
        else:
            draw()


DocumentOutput = Annotated[Output, "as_json"]
RowOutput = Annotated[Output, "as_json form"]
OUTPUT_OPTIONS = {
    "as_json": Annotated[bool, typer.Option("--json", help="Print JSON: one document.")],
    "form": Annotated[
        Form,
        typer.Option(
            "--format", metavar="FORMAT", help="Format of rows: auto, table, jsonl, csv or parquet."
        ),
    ],
}


def with_options(function: Command) -> Command:
    """Return a command with the options that its parameters `out` and `options` stand for."""
    own = signature(function)
    parameters, together = list[Parameter](), dict[str, list[str]]()
    for parameter in own.parameters.values():
        kind, *about = get_args(parameter.annotation) or (None,)
        if kind not in (Output, RunOptions):
            parameters.append(parameter)
            continue
        names = together[parameter.name] = about[0].split()
        known = OUTPUT_OPTIONS if kind is Output else RUN_OPTIONS
        usual = kind() if parameter.default is Parameter.empty else parameter.default
        parameters += [_option(name, known[name], getattr(usual, name)) for name in names]
    if not together:
        return function

    @wraps(function)
    def command(**given: Any) -> None:
        parts = {
            name: {field: given.pop(field) for field in fields} for name, fields in together.items()
        }
        if "out" in parts:
            given["out"] = Output(**parts["out"])
        if "options" in parts:
            settings = tuple(parts["options"].pop("settings") or ())
            refuse_secrets(settings)
            given["options"] = RunOptions(**parts["options"], settings=settings)
        function(**given)

    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(command)["__signature__"] = own.replace(parameters=parameters)
    return command


def _option(name: str, hint: Any, default: object) -> Parameter:
    usual = None if default == () else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=usual, annotation=hint)


def refuse_secrets(settings: Sequence[str]) -> None:
    """Refuse a key on the command line, which every user of the machine can read."""
    if not settings:
        return
    from ...configs.describe import fields
    from ...configs.mistakes import ConfigError

    secret = {field.path.rpartition(".")[2] for field in fields() if field.secret}
    for text in settings:
        path = text.removeprefix("--set=").partition("=")[0].strip()
        if path.rpartition(".")[2] in secret:
            raise ConfigError(
                f"--set {path}: a command line can be read by every user of this machine; set the "
                "environment variable LPFLOOP_API_KEY instead"
            )
