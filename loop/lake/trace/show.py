"""The output of `lpfloop show` for an id: the rows around it, as a page and as JSON."""

from dataclasses import dataclass

from ....stores.lake import RunReader
from ....stores.schemas import plain
from .checkpoint_story import CheckpointStory, checkpoint_page, checkpoint_story
from .find_row import Found
from .html_page import page_html
from .page import Page
from .story import Story, prompt_story
from .story_page import story_page
from .terminal_page import page_text
from .why import reasons


@dataclass(frozen=True, slots=True)
class ShownRow:
    """The details of an id: text for a terminal, HTML for a notebook, a document for programs."""

    story: Story | CheckpointStory

    @property
    def page(self) -> Page:
        """The page to draw."""
        if isinstance(self.story, Story):
            return story_page(self.story)
        return checkpoint_page(self.story)

    @property
    def document(self) -> dict[str, object]:
        """The page's rows as JSON data; a prompt's with the reasons for its pairs."""
        rows: dict[str, object] = plain(self.story)
        return {**rows, "why": reasons(self.story)} if isinstance(self.story, Story) else rows

    def __str__(self) -> str:
        return page_text(self.page)

    def _repr_html_(self) -> str:
        return page_html(self.page)


def show_row(run: RunReader, found: Found, iteration: int | None = None) -> ShownRow:
    """Return the rows and the page of an id."""
    if found.kind == "checkpoint":
        return ShownRow(checkpoint_story(run, found))
    return ShownRow(prompt_story(run, found, iteration))
