"""People's labels instead of simulated annotators', from the sources in `annotation.source`.

Sources are files in the formats that a mix accepts, or runs of the same lake: imported ones, or
runs whose answers people compared (`lpfloop view`). Answers and votes become rows of the iteration,
grouped by prompt; of several votes on the same two answers the majority decides. Rows are skipped,
and counted, as in a mix.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from pathlib import Path

from ...configs.recipes import Annotated
from ...configs.schema import ConfigError, RunConfig
from ...stores.keys import Json
from ...stores.records import Candidate, Preference, Prompt
from ..data.binarize import BINARISATIONS
from ..data.cycles import MOST
from ..data.files import InputError
from ..data.prompts import LABELLED
from ..data.rating_scale import SCALES, THREE_LEVEL
from ..data.row_notes import PromptIds
from ..lake.annotations.compared_answers import (
    compared_answers,
    compared_digest,
    paired_answers,
)
from ..lake.imports.imported_rows import Maker
from ..lake.query.runs import open_run
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.models import compares
from ..run.run import OF_RUN, Comparison, Labels, Verb, Work
from .mix import (
    Taking,
    comparing_format,
    comparisons,
    decides,
    majority_pairs,
    mix_digests,
    prompt_of,
    take_chunks,
    taking_params,
)

TAKE_LABELS = Verb("labels")
LABELS = "labels"
"""The stage of people's labels, the filter of their counts, and a fact of the fingerprint."""


def labels_of(config: RunConfig, lake: Path) -> Labels | None:
    """Return the comparisons that a run learns from in place of its annotators', if it does.

    Raises:
        ConfigError: if the recipe learns from no comparisons.
        InputError: for a file that cannot be read.
        NoSuchRunError: for a run that is not in the lake.
    """
    sources = config.annotation.source
    if not sources:
        return None
    _require_use(config)
    identity: list[Json] = [_identity(source, lake) for source in sources]
    return Labels(identity=identity, read=partial(_read, sources, lake))


def labels_fingerprint(labels: Labels | None) -> dict[str, Json]:
    """Return the identity of people's labels, which must not change during a run."""
    return {} if labels is None else {LABELS: labels.identity}


def label_prompts(config: RunConfig, lake: Path) -> list[Prompt]:
    """Return the prompts that people's labels are about, all of which are read to the end.

    Raises:
        InputError: for anything that cannot be read as meant, or labels that decide nothing.
    """
    _require_use(config)
    sources, some = config.annotation.source, False
    prompts, answers = dict[str, Prompt](), dict[str, set[str]]()
    for made in _read(sources, lake, 0, PromptIds()):
        prompt = prompt_of(made)
        prompts.setdefault(prompt.prompt_id, prompt)
        compared = (row.candidate_id for row in made if isinstance(row, Candidate))
        answers.setdefault(prompt.prompt_id, set()).update(compared)
        some = some or decides(made)
    if not some:
        raise InputError(
            f"{LABELLED}: {', '.join(sources)} holds no decided comparison to train on; of ratings "
            "or grades `lpfloop rebuild-pairs RUN --rule RULE` makes pairs; name them by "
            "run:RUN/TABLE"
        )
    most = max(map(len, answers.values()))
    if config.annotation.drop_cycles and most > MOST:
        raise InputError(
            f"{LABELLED}: {most} answers to a prompt are compared, and annotation.drop_cycles "
            f"finds the fewest comparisons to drop among at most {MOST}; leave it off"
        )
    return list(prompts.values())


def require_same_prompts(labelled: Sequence[Prompt], own: Sequence[Prompt]) -> None:
    """Refuse labels on another prompt than the run has under the same id.

    Raises:
        InputError: naming the id.
    """
    known = {prompt.prompt_id: prompt.messages for prompt in own}
    for prompt in labelled:
        if known.get(prompt.prompt_id, prompt.messages) != prompt.messages:
            raise InputError(
                f"{LABELLED}: the id {prompt.prompt_id!r} belongs to another prompt of the run; "
                "give each prompt its own id, or none"
            )


def commit_labels(it: Iteration) -> tuple[Rows[Candidate], Rows[Preference]]:
    """Commit the answers that people compared, and their preferences, prompt by prompt.

    Raises:
        ConfigError: if `annotation.source` is empty.
    """
    it.require(Annotated, "labelled")
    labels = it.run.labels
    if labels is None:
        raise ConfigError(f"{LABELLED} names no comparisons by people")
    size = it.run.config.prompts.chunk
    chunks = cache(lambda: _chunked(labels.read(it.number), size))
    pending = Work(
        verb=TAKE_LABELS,
        params={"source": labels.identity, "chunk": size, **taking_params(it)},
        upstream=(),
        reads=lambda: [(f"{n}/{len(chunks())}",) for n in range(len(chunks()))],
    )

    taking = Taking(iteration=it.number, prompts=it.run.prompts, votes=True, called=LABELS)
    planned = take_chunks(it, LABELS, pending, taking, chunks)
    return Rows(row_type=Candidate, stages=(planned,)), Rows(row_type=Preference, stages=(planned,))


def _chunked(rows: Iterator[Comparison], size: int) -> list[list[Comparison]]:
    """Return comparisons in chunks of `size` prompts, all of a prompt in one chunk."""
    chunk_of, chunks = dict[str, int](), list[list[Comparison]]()
    for made in rows:
        chunk = chunk_of.setdefault(prompt_of(made).prompt_id, len(chunk_of) // size)
        if chunk == len(chunks):
            chunks.append([])
        chunks[chunk].append(made)
    return chunks


def _require_use(config: RunConfig) -> None:
    """Refuse labels for a recipe that learns from no comparisons."""
    if compares(config):
        return
    rewarded = isinstance(config.recipe, Annotated)
    why = "a reward model is configured" if rewarded else "its method needs none"
    raise ConfigError(
        f"{LABELLED} is set, and the recipe {config.recipe.name} learns from no comparisons: "
        f"{why}; leave it out"
    )


def _identity(source: str, lake: Path) -> Json:
    """Return the hash of a source's contents, and how it is read."""
    if source.startswith(OF_RUN):
        name, _, table = source.removeprefix(OF_RUN).partition("/")
        with closing(open_run(lake, name)) as run:
            return [source, compared_digest(run, table or None)]
    path = Path(source)
    return [*mix_digests([path]), comparing_format(path).semantics]


def _read(
    sources: Sequence[str], lake: Path, iteration: int, ids: PromptIds | None = None
) -> Iterator[Comparison]:
    """Give the comparisons of all sources as rows of an iteration."""
    for source in sources:
        if source.startswith(OF_RUN):
            yield from _of_run(lake, source.removeprefix(OF_RUN), iteration)
        else:
            yield from comparisons(Path(source), iteration, ids=ids)


def _of_run(lake: Path, named: str, iteration: int) -> Iterator[Comparison]:
    name, _, table = named.partition("/")
    make = Maker(source=name, scale=SCALES[THREE_LEVEL], task=None, iteration=iteration)
    with closing(open_run(lake, name)) as run:
        if table:
            for prompt, chosen, rejected, own in paired_answers(run, table, iteration):
                vote = make.preference(chosen, rejected, f"rule:{own.rule}", "first")
                # The scores of another rule are rewards, by which the chosen one may be behind.
                graded = own.rule in BINARISATIONS
                scores = (own.chosen_reward, own.rejected_reward) if graded else (None, None)
                yield [prompt, chosen, rejected, vote, make.pair(prompt, chosen, rejected, scores)]
            return
        for made in compared_answers(run, iteration):
            yield [*made, *majority_pairs(made, make)]
