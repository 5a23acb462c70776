"""The page of `lpfloop model`: the facts of a model, its figures, and commands to use it."""

from collections.abc import Iterator, Mapping

import polars as pl

from ....stores.lake import RunReader
from ..query.best_model import BestModel, NoSuchFigureError, best_model
from ..query.format_figures import (
    figure_label,
    format_change,
    format_figure,
    format_interval,
    split_name,
)
from ..query.model_figures import ModelFigure, RunResults
from ..query.model_names import checkpoints
from .page import Grid, Page, PageSection
from .published_model import PublishedModel, State, published_model

GIGA, MEGA = 10**9, 10**6
ABSENT: dict[State, str] = {
    "bucket": "; fetched and verified when it is copied, served or asked",
    "missing": "; there is no such folder from here",
    "removed": "; removed by `lpfloop lake gc --keep`",
    "served": "; an endpoint, so there is no folder",
}
FIELD = 12


def model_page(model: PublishedModel, why: str | None, where: str) -> Page:
    """Return the page of a model; `why` is why it is the best, `where` is the option --lake."""
    facts = [f"{name:<{FIELD}}{value}" for name, value in _facts(model)]
    sections = [PageSection(heading="", lines=(*facts, *([] if why is None else [why])))]
    split = model.results.split
    if split is not None:
        measured = f"on {split_name(split)}, with 95 % intervals"
        sections.append(PageSection(heading=measured, grid=_grid(model.name, model.results)))
    if model.state in ("here", "bucket"):
        sections.append(PageSection(heading="next", lines=tuple(_next(model, where))))
    return Page(title=f"{model.name} of run {model.run}", sections=tuple(sections))


def list_models(run: RunReader) -> tuple[pl.DataFrame, BestModel | None]:
    """Return a row for each model, and the best of them by the figure that compares them."""
    made = checkpoints(run)
    try:
        best = best_model(run, made)
    except NoSuchFigureError:
        best = None
    values: Mapping[int, ModelFigure] = {} if best is None else best.values
    models = (published_model(run, checkpoint) for checkpoint in made)
    rows = [_model_row(model, values.get(model.iteration), best) for model in models]
    bounds = dict.fromkeys(("value", "low", "high"), pl.Float64)
    types = {"figure": pl.String, **bounds, "n": pl.Int64}
    return pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None), best


def _model_row(
    model: PublishedModel, row: ModelFigure | None, best: BestModel | None
) -> dict[str, object]:
    return {
        "name": model.name,
        "checkpoint_id": model.id,
        "parent": (model.parent or "").partition(" ")[0],
        "recipe": model.recipe,
        "steps": model.steps,
        "figure": best and best.figure,
        "value": row and row.value,
        "low": row and row.low,
        "high": row and row.high,
        "n": row and row.n,
        "best": best is not None and best.checkpoint.name == model.name,
        "state": model.state,
        "place": model.place,
    }


def _facts(model: PublishedModel) -> Iterator[tuple[str, str]]:
    yield "id", model.id
    yield (
        "place" if model.state == "served" else "folder",
        model.place + ABSENT.get(model.state, ""),
    )
    yield "parent", model.parent or "none: the run began with it"
    if model.reference is not None:
        yield "reference", f"{model.reference} (the policy that training kept it near)"
    yield "recipe", f"{model.recipe}, {model.steps:,} steps"
    if model.trained_on:
        parts = ((table, *part) for table, by in model.trained_on.items() for part in by.items())
        yield "trained on", ", ".join(f"{n:,} {table} by {rule}" for table, rule, n in parts)
    if model.metrics:
        yield "metrics", ", ".join(f"{name} {value:.4g}" for name, value in model.metrics.items())
    if model.bytes is not None:
        size = model.bytes
        yield "weights", f"{size / GIGA:.2f} GB" if size >= GIGA else f"{size / MEGA:.1f} MB"
    if model.adapter is not None:
        yield "adapter", f"{model.adapter} (merged into the weights; peft loads it onto the parent)"
    if model.control:
        yield "prompt", f"put {model.control!r} before each user message"


def _grid(name: str, results: RunResults) -> Grid:
    """Return a line for each figure of the model, with the first model's and the change."""
    own, first = results.models[-1].iteration, results.models[0]
    alone = len(results.models) == 1
    before = {(row.name, row.figure): row for row in results.rows if row.iteration != own}
    names = ("figure", "n", name, *(() if alone else (f"M_{first.iteration}", "change")))
    rows = list[tuple[str, ...]]()
    for row in results.rows:
        if row.iteration == own:
            label = figure_label(row.figure)
            value = f"{format_figure(row)} {format_interval(row)}".rstrip()
            cells = (f"{row.name}: {label}" if row.name else label, f"{row.n:,}", value)
            other = before.get((row.name, row.figure))
            change = () if alone else (format_figure(other), format_change(row))
            rows.append((*cells, *change))
    return Grid(columns=names, rows=tuple(rows), names=1)


def _next(model: PublishedModel, where: str) -> Iterator[str]:
    command = f"lpfloop model {model.run} {model.name}{where}"
    yield f"{command} --copy DIR    a plain model folder, for transformers and vLLM"
    yield f"{command} --serve       an OpenAI-compatible server on this machine"
    yield (
        f"lpfloop eval run {model.run} --iteration {model.iteration} --prompts FILE{where}    "
        "measure it on other prompts"
    )
