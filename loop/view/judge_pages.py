"""Judging by hand in the browser: choosing a queue, and one item after another by keyboard.

A GET shows the person's current item and is read-only; each POST does one thing and leads to the
next item by a redirect, so that reloading a page judges nothing twice.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qsl

from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...stores.annotation_ledger import LEDGER, has_ledger
from ...stores.lake import RunReader
from ...stores.lock import LockedError
from ..data.files import InputError
from ..evaluation.annotation_session import AnnotationSession, JudgingCard, Opinion
from ..lake.annotations.bring_in import bring_in_alone, waiting
from ..lake.annotations.judging_queue import OVERLAP, Overlap, QueueRequest
from .viewing import Viewing, address

LONGEST = 100_000
"""The most bytes of a form: a comment may be long, but not a book."""
CHOSEN = ("as", "judged", "overlap", "people", "task", "aspect", "iteration", "seed")
RATING = "rating:"
TIE = "tie"
Form = Mapping[str, str]


def choose(viewing: Viewing, request: Request) -> Response:
    """Show the form for the judging person and the queue."""
    with viewing.run(request) as run:
        left = len(waiting(run.folder))
        return _page(
            viewing,
            "judge.html",
            run=run.folder.name,
            overlap=OVERLAP,
            waiting=left,
            told=request.query_params.get("told", ""),
        )


def item(viewing: Viewing, request: Request) -> Response:
    """Show the item that the person holds, or how to begin."""
    form = dict(request.query_params)
    with viewing.run(request) as run:
        return _item(viewing, run, form)


def live(viewing: Viewing, request: Request) -> Response:
    """Return progress and agreement, if they have changed."""
    form = dict(request.query_params)
    with viewing.run(request) as run:
        name = f"judge {run.folder.name} {address(**_chosen(form))}"
        version = _version(run.folder)
        return viewing.answer_live(request, name, version, lambda: _now(run, form))


async def act(viewing: Viewing, request: Request) -> Response:
    """Judge, skip, take back or begin; then lead to the item that is held now."""
    form = await _form(request)
    return await run_in_threadpool(_answer, viewing, request, lambda run: _act(run, form))


async def commit(viewing: Viewing, request: Request) -> Response:
    """Commit the judgments to the run, unless another process holds it."""
    await _form(request)
    return await run_in_threadpool(_answer, viewing, request, _redirect)


def _answer(
    viewing: Viewing, request: Request, answer: Callable[[RunReader], Response]
) -> Response:
    with viewing.run(request) as run:
        return answer(run)


def _page(viewing: Viewing, template: str, **values: object) -> Response:
    """Return a page with forms: without its address as referrer they would name no origin."""
    page = viewing.page(template, 200, **values)
    page.headers["Referrer-Policy"] = "same-origin"
    return page


def _item(viewing: Viewing, run: RunReader, form: Form) -> Response:
    card, rubric = None, {}
    if has_ledger(run.folder):
        with closing(_session(run, form)) as session:
            held = session.held_card()
            card, rubric = (None if held is None else held[0]), session.rubric
    return _page(
        viewing,
        "judge_item.html",
        run=run.folder.name,
        asked=_chosen(form),
        card=card,
        rubric=rubric,
        rating=RATING,
        done=form.get("done", ""),
        version=_version(run.folder),
        now=_now(run, form),
    )


def _now(run: RunReader, form: Form) -> Markup:
    if not has_ledger(run.folder):
        return Markup()
    with closing(_session(run, form)) as session:
        progress, agreement = session.progress().sentence, session.agreement().sentence
    return Markup("<p>{}</p>\n<p>{}</p>").format(progress, agreement)


def _version(folder: Path) -> str:
    """Return a version that changes with each judgment."""
    found = [folder / name for name in (LEDGER, f"{LEDGER}-wal")]
    stats = [path.stat() for path in found if path.exists()]
    return "-".join(f"{stat.st_size}.{stat.st_mtime_ns}" for stat in stats) or "none"


def _session(run: RunReader, form: Form) -> AnnotationSession:
    return AnnotationSession(run, form.get("as", ""), _request(form))


def _request(form: Form) -> QueueRequest:
    """Return the queue that an address or a form names.

    Raises:
        InputError: naming the field that cannot be used.
    """
    judged = form.get("judged", "ratings")
    if judged not in ("ratings", "pairs"):
        raise InputError(f"judged: {judged!r} is neither ratings nor pairs")
    share = _number(form, "overlap", OVERLAP.share, most=1)
    people = _number(form, "people", OVERLAP.people, most=20)
    iteration = _number(form, "iteration", -1, most=10**6)
    return QueueRequest(
        judged="pairs" if judged == "pairs" else "ratings",
        overlap=Overlap(share=share, people=max(int(people), 2)),
        task=form.get("task") or None,
        aspect=form.get("aspect") or None if judged == "ratings" else None,
        iteration=None if iteration < 0 else int(iteration),
        seed=int(_number(form, "seed", 0, most=2**31)),
    )


def _number(form: Form, name: str, default: float, *, most: float) -> float:
    text = form.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = most + 1
    if text and not 0 <= value <= most:
        raise InputError(f"{name}: {text!r} is not a number from 0 to {most:g}")
    return value


def _chosen(form: Form) -> dict[str, str]:
    return {name: form[name] for name in CHOSEN if form.get(name)}


def _act(run: RunReader, form: Form) -> Response:
    """Do a form's action, and give the person their next item."""
    with closing(_session(run, form)) as session:
        done = _apply_action(session, form)
        session.begin()
        left = session.next_card()
    state = {"done": "all" if left is None else done}
    return RedirectResponse(_place(run, "item", **_chosen(form), **state), 303)


def _apply_action(session: AnnotationSession, form: Form) -> str:
    """Do one thing; return a message about it, if any.

    A form that was sent twice, or is of an item that the person does not hold any more, is ignored.
    """
    deed = form.get("do", "judge")
    if deed == "next":
        return ""
    if deed == "again":
        session.again(form.get("answer", ""))
        return ""
    if deed == "undo":
        return "undone" if session.undo() else "nothing to take back"
    held = session.held_card()
    if held is None or held[0].item.name != form.get("item"):
        return "that was judged before"
    card, seconds = held
    if deed == "skip":
        session.skip(card)
    else:
        session.judge(card, _opinion(card, form), seconds)
    return ""


def _opinion(card: JudgingCard, form: Form) -> Opinion:
    """Return a form's opinion of an item.

    Raises:
        InputError: if a rating of an aspect, or the preferred answer, is missing.
    """
    comment = form.get("comment", "")
    if not card.aspects:
        if form.get("better") not in ("0", "1", TIE):
            raise InputError("choose the better answer, or equally good")
        better = None if form["better"] == TIE else int(form["better"])
        return Opinion(ratings={}, better=better, comment=comment)
    given = {name: form.get(f"{RATING}{name}") for name in card.aspects}
    missing = [name for name, rating in given.items() if rating not in ("-1", "0", "1")]
    if missing:
        raise InputError(f"rate {', '.join(missing)}, too: -1, 0 or 1")
    ratings = {name: int(rating) for name, rating in given.items() if rating is not None}
    return Opinion(ratings=ratings, comment=comment)


def _redirect(run: RunReader) -> Response:
    try:
        message = f"{bring_in_alone(run.folder)} judgements came into the run"
    except LockedError:
        message = "a process works on the run: it takes them before it makes pairs"
    return RedirectResponse(_place(run, told=message), 303)


def _place(run: RunReader, *parts: str, **query: str) -> str:
    return address("runs", run.folder.name, "judge", *parts, **query)


async def _form(request: Request) -> Form:
    """Return the fields of a form.

    Raises:
        HTTPException: if it is longer than any form of ours.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LONGEST:
            raise HTTPException(413, f"a form has at most {LONGEST:,} bytes")
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
