"""Studies as a list: each with its verdict, as the runs of a lake or written pages give it."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...stores.keys import Json
from ...stores.lake import run_names
from ...stores.outputs import output_file
from ..lake.query.figures import NotMeasuredError
from ..lake.query.runs import open_run
from .evidence import PREFIX, Evidence, final_end
from .study import Study
from .study_pages import verdict_line

INDEX, PAGES = "studies.md", "studies"
NO_VERDICT = "-"
STANDING = re.compile(
    re.escape(verdict_line("@")).replace("@", "([a-z ]+)") + r" Seeds: ([0-9, ]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedStudy:
    """A study with its verdict over these seeds, which is missing without seeds."""

    study: Study
    verdict: str
    seeds: tuple[int, ...]

    def document(self) -> dict[str, Json]:
        """Return it as JSON data."""
        study = self.study
        return {
            "name": study.name,
            "paper": study.paper,
            "hypothesis": study.hypothesis,
            "built_in": study.built_in or None,
            "arms": [arm.name for arm in study.arms],
            "verdict": self.verdict if self.seeds else None,
            "seeds": list(self.seeds),
        }


def listed_in_lake(studies: Sequence[Study], lake: Path) -> list[ListedStudy]:
    """Return the studies with their verdicts over the seeds whose runs have ended in every arm."""
    names = [name for name in run_names(lake) if name.startswith(f"{PREFIX}-")]
    ended = {name for name in names if _has_ended(lake, name)}
    return [_in_lake(study, lake, ended) for study in studies]


def _has_ended(lake: Path, name: str) -> bool:
    with closing(open_run(lake, name)) as run:
        return final_end(run) is not None


def _in_lake(study: Study, lake: Path, ended: set[str]) -> ListedStudy:
    of_arms = [
        {int(name.rpartition("-")[2]) for name in ended if _arm_of(name) == arm.name}
        for arm in study.arms
    ]
    seeds = tuple(sorted(set[int].intersection(*of_arms)))
    if not seeds:
        return ListedStudy(study=study, verdict=NO_VERDICT, seeds=())
    try:
        verdict = study.find(Evidence(lake=lake, seeds=seeds)).verdict
    except NotMeasuredError as error:
        verdict = str(error)
    return ListedStudy(study=study, verdict=verdict, seeds=seeds)


def _arm_of(run: str) -> str:
    arm, _, seed = run.removeprefix(f"{PREFIX}-").rpartition("-")
    return arm if seed.isdecimal() else ""


def write_index(folder: Path, studies: Sequence[Study], *, force: bool) -> Path:
    """Write the index of the pages in a folder's `studies`; return its path.

    Raises:
        TargetError: if it cannot be written.
    """
    index, pages = folder / INDEX, folder / PAGES
    listed = [_in_page(study, pages / f"{study.name}.md") for study in studies]
    output_file(index, "\n".join(_lines(listed)).encode(), force=force)
    return index


def _in_page(study: Study, page: Path) -> ListedStudy:
    found = STANDING.search(page.read_text(encoding="utf-8")) if page.is_file() else None
    if found is None:
        return ListedStudy(study=study, verdict=NO_VERDICT, seeds=())
    seeds = tuple(int(seed) for seed in found[2].split(","))
    return ListedStudy(study=study, verdict=found[1], seeds=seeds)


def _lines(listed: Sequence[ListedStudy]) -> Iterator[str]:
    yield "# Studies: do the papers' claims hold?\n"
    for paper in dict.fromkeys(one.study.paper for one in listed):
        yield f"## {paper}\n"
        yield "| study | hypothesis | verdict |"
        yield "| --- | --- | --- |"
        for one in (one for one in listed if one.study.paper == paper):
            name = one.study.name
            page = f"[{name}]({PAGES}/{name}.md)" if one.seeds else name
            verdict = f"{one.verdict} ({len(one.seeds)} seeds)" if one.seeds else "not run"
            yield f"| {page} | {one.study.hypothesis} | {verdict} |"
        yield ""
