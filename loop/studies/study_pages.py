"""A study as a page of Markdown with its plot: the same evidence gives the same bytes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...stores.outputs import file_target, output_file
from ..evaluation.plots import check_plot, plot_bytes
from .claims import PaperClaim
from .study import Study, StudyArm, StudyFinding, StudyTable

ERRORS = (
    "Each figure is a mean over seeds, each a whole run, with Student's interval of level 95 %\n"
    "over them. A claim *holds* if its whole interval lies in its region, *does not hold* if it\n"
    "lies outside, and is *undecided* else; the study holds if all its claims do."
)

INDEX, PAGES = "studies.md", "studies"
STANDING = re.compile(r"\*\*Verdict: ([a-z ]+)\.\*\* Seeds: ([0-9, ]+)")
"""The sentence of a page with its verdict and its seeds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFacts:
    """How a page was made: its seeds, its world, its command, runs that ended early.

    `where` is the option by which other commands find the lake.
    """

    seeds: tuple[int, ...]
    world: str
    command: str
    remarks: Sequence[str] = ()
    where: str = ""


def check_page(folder: Path, study: Study, *, force: bool) -> None:
    """Check before any work that a study's page and plot can be written.

    Raises:
        FormError: if plots cannot be drawn here.
        TargetError: if one of them is there already and not `force`.
    """
    file_target(folder / f"{study.name}.md", force=force)
    check_plot(folder / f"{study.name}.svg", force=force)


def write_page(
    folder: Path, study: Study, finding: StudyFinding, facts: PageFacts, *, force: bool
) -> Path:
    """Write the page of a study, and its plot if it has one.

    Raises:
        TargetError: if one cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{study.name}.md"
    if finding.panels:
        plot = plot_bytes(finding.panels, ".svg")
        output_file(page.with_suffix(".svg"), plot, force=force)
    output_file(page, page_text(study, finding, facts).encode(), force=force)
    return page


def page_text(study: Study, finding: StudyFinding, facts: PageFacts) -> str:
    """Return the page of a study."""
    return "\n".join(_lines(study, finding, facts)) + "\n"


def _lines(study: Study, finding: StudyFinding, facts: PageFacts) -> Iterator[str]:
    yield f"# Study: {study.name}\n"
    if study.built_in:
        yield f"**Built in.** {study.built_in}\n"
    yield f"**Hypothesis.** {study.hypothesis}\n"
    yield f"**Paper.** {study.paper}\n"
    seeds = ", ".join(map(str, facts.seeds))
    yield f"**Verdict: {finding.verdict}.** Seeds: {seeds}; {facts.world}.\n"
    yield from _table(claim_table(finding.claims))
    yield f"{ERRORS}\n"
    if finding.panels:
        yield f"![{study.name}]({study.name}.svg)\n"
    if finding.notes or facts.remarks:
        yield "## What the rows show\n"
        yield from (f"- {note}" for note in (*finding.notes, *facts.remarks))
        yield ""
    for table in finding.tables:
        yield f"## {table.title}\n"
        yield from _table(table)
    yield "## The arms\n"
    yield from _table(_arm_table(study.arms))
    yield "## The commands\n"
    yield "The first made this page; the others show what it is made of.\n"
    shown = [f"{command}{facts.where}" for command in finding.commands]
    yield from ("```", facts.command, *shown, "```")


def write_index(folder: Path, studies: Sequence[Study], *, force: bool) -> Path:
    """Write the index of the pages in a folder's `studies`; return its path.

    Raises:
        TargetError: if it cannot be written.
    """
    index = folder / INDEX
    output_file(index, "\n".join(_index_lines(studies, folder / PAGES)).encode(), force=force)
    return index


def _index_lines(studies: Sequence[Study], pages: Path) -> Iterator[str]:
    yield "# Studies: do the papers' claims hold?\n"
    for paper in dict.fromkeys(study.paper for study in studies):
        yield f"## {paper}\n"
        yield "| study | hypothesis | verdict |"
        yield "| --- | --- | --- |"
        for study in (study for study in studies if study.paper == paper):
            page = pages / f"{study.name}.md"
            found = STANDING.search(page.read_text(encoding="utf-8")) if page.is_file() else None
            name, verdict = study.name, "not run"
            if found is not None:
                name = f"[{name}]({PAGES}/{name}.md)"
                verdict = f"{found[1]} ({len(found[2].split(','))} seeds)"
            yield f"| {name} | {study.hypothesis} | {verdict} |"
        yield ""


def claim_table(claims: Sequence[PaperClaim]) -> StudyTable:
    """Return the claims, a row each: the paper's figure and ours."""
    return StudyTable(
        title="Claims",
        columns=("claim", "in the paper", "here", "holds", "verdict"),
        rows=[
            (claim.says, claim.paper.cell(), claim.estimate.cell(), claim.region, claim.verdict)
            for claim in claims
        ],
    )


def _arm_table(arms: Sequence[StudyArm]) -> StudyTable:
    return StudyTable(
        title="The arms",
        columns=("arm", "recipe", "settings", "sizes in the tiny world"),
        rows=[(arm.name, arm.recipe, _words(_arm_settings(arm)), _words(arm.tiny)) for arm in arms],
    )


def _arm_settings(arm: StudyArm) -> Sequence[str]:
    """Return the settings of an arm, with the models that others make and its input files."""
    models = (("policy.model", arm.policy_of), ("reward.model", arm.reward_of))
    made = (f"{setting}: the last of {maker}" for setting, maker in models if maker)
    read = (f"{file.setting}: {file.name}.jsonl" for file in arm.files)
    return (*arm.settings, *made, *read)


def _words(settings: Sequence[str]) -> str:
    return ", ".join(f"`{setting}`" for setting in settings) or "-"


def _table(table: StudyTable) -> Iterator[str]:
    rule = ["---"] * len(table.columns)
    for row in (table.columns, rule, *table.rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""
