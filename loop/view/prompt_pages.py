"""The page of one prompt, and the address that leads from any id to its place."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ...stores.lake import RunReader
from ..lake.trace.find_row import Found, NoSuchIdError, find
from ..lake.trace.story import prompt_story
from .drawing import address
from .page_query import number
from .prompt_sheet import PromptSheet, prompt_sheet
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
        identity = request.path_params["prompt"]
        with self.viewing.run(request) as run:
            sheet = sheet_of(
                run, identity, number("iteration", request.query_params.get("iteration"))
            )
            name = run.folder.name
        return self.viewing.page("prompt.html", run=name, sheet=sheet)

    def row(self, request: Request) -> Response:
        """Lead to the place of a row on its prompt's page, or of a checkpoint on its run's."""
        with self.viewing.run(request) as run:
            found = find(run, request.path_params["row"])
            return RedirectResponse(_place(run, found), 303)


def sheet_of(run: RunReader, prompt_id: str, iteration: int | None) -> PromptSheet:
    """Return a prompt's page.

    Raises:
        NoSuchIdError: if the run lacks the prompt.
    """
    about = Found(kind="prompt", id=prompt_id, prompt_id=prompt_id)
    if not _has(run, prompt_id):
        raise NoSuchIdError(f"prompt {prompt_id!r} is not in run {run.folder.name}")
    return prompt_sheet(prompt_story(run, about), iteration)


def _has(run: RunReader, prompt_id: str) -> bool:
    (frame,) = run.about(prompt_id, ["prompts"])
    return bool(frame.select("prompt_id").head(1).collect().height)


def _place(run: RunReader, found: Found) -> str:
    name = run.folder.name
    if found.prompt_id is None:
        return f"{address('runs', name)}#{found.id}"
    place = address("runs", name, "prompts", found.prompt_id)
    if found.kind == "prompt":
        return place
    sheet = prompt_sheet(prompt_story(run, found), None)
    page = address("runs", name, "prompts", found.prompt_id, iteration=sheet.iteration)
    return f"{page}#{found.id}"
