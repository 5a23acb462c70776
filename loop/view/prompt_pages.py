"""The page of one prompt, and the address that leads from any id to its place."""

from dataclasses import dataclass

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...stores.lake import RunReader
from ..lake.trace.find_row import Found, find
from ..lake.trace.html_page import sections_html
from ..lake.trace.story import prompt_story
from ..lake.trace.story_page import story_page
from .drawing import address
from .page_query import number
from .viewing import Viewing


@dataclass(frozen=True, slots=True)
class PromptPages:
    """The pages about a prompt."""

    viewing: Viewing

    def routes(self) -> list[Route]:
        """Return their addresses; an id may hold any character, slashes too."""
        return [
            Route("/runs/{run}/prompts/{prompt:path}", self.one),
            Route("/runs/{run}/rows/{row:path}", self.row),
        ]

    def one(self, request: Request) -> Response:
        """Show a prompt with its candidates, in one iteration."""
        prompt = request.path_params["prompt"]
        requested = number("iteration", request.query_params.get("iteration"))
        with self.viewing.run(request) as run:
            story = prompt_story(run, Found(kind="prompt", id=prompt, prompt_id=prompt))
        iteration = story.shown_iteration if requested is None else requested
        return self.viewing.page(
            "prompt.html",
            run=story.run,
            prompt=prompt,
            iterations=story.iterations,
            iteration=iteration,
            # Escaped already.
            page=Markup(sections_html(story_page(story, iteration))),  # noqa: S704
        )

    def row(self, request: Request) -> Response:
        """Lead to the place of a row on its prompt's page, or of a checkpoint on its run's."""
        with self.viewing.run(request) as run:
            found = find(run, request.path_params["row"])
            return RedirectResponse(_place(run, found), 303)


def _place(run: RunReader, found: Found) -> str:
    name = run.folder.name
    if found.prompt_id is None:
        return f"{address('runs', name)}#{found.id}"
    if found.kind == "prompt":
        return address("runs", name, "prompts", found.prompt_id)
    iteration = prompt_story(run, found).shown_iteration
    return f"{address('runs', name, 'prompts', found.prompt_id, iteration=iteration)}#{found.id}"
