"""The output of `lpfloop show` for an id: the rows around it, as a page and as JSON."""

from dataclasses import dataclass

from ....stores.address import in_lake
from ....stores.lake import RunReader
from ....stores.schemas import plain
from ..query.model_names import checkpoints, step_policies
from .find_row import Found
from .page import Page
from .story import prompt_story
from .story_page import story_page
from .terminal_page import page_text
from .why import reasons


@dataclass(frozen=True, slots=True)
class ShownPage:
    """A page about rows: text for people, a document for programs."""

    page: Page
    document: dict[str, object]

    def __str__(self) -> str:
        return page_text(self.page).rstrip("\n")

    __repr__ = __str__


def show_row(run: RunReader, found: Found, iteration: int | None = None) -> ShownPage:
    """Return the page of an id; a model's is that of `lpfloop model`.

    A prompt's document has the rows of the page, and the reasons for its pairs.
    """
    if found.kind == "checkpoint":
        # Of the trainers, which the page of a prompt does not need.
        from .model_page import model_page
        from .published_model import published_model

        made = (*checkpoints(run), *step_policies(run))
        model = published_model(run, next(c for c in made if c.checkpoint_id == found.id))
        where = in_lake(run.folder.parent.parent)
        return ShownPage(model_page(model, None, where), model.as_json())
    story = prompt_story(run, found, iteration)
    return ShownPage(story_page(story), {**plain(story), "why": reasons(story)})
