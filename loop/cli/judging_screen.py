"""Judging by hand in a terminal, by keyboard alone: one item after another, as over ssh.

Nothing of an item is interpreted: what a model wrote is shown as it is, with hidden characters as
their codes.
"""

import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, Static

from ...stores.annotation_ledger import LedgerError
from ..data.files import InputError
from ..data.sanitize import one_line, visible
from ..evaluation.annotation_session import AnnotationSession, JudgingCard, Opinion

LEVELS = {-1: "failure", 0: "moderate", 1: "success"}
NAMES = "AB"
RUBRIC = 70
"""A rubric may be longer than the screen is high; its beginning says what it is about."""
NOTHING_LEFT = "Nothing is left for you in this queue. q ends."


class JudgingScreen(App[int]):
    """Judges items until the person quits; it returns how many they judged."""

    CSS = """
    #texts { height: 1fr; padding: 0 1; }
    #said, #foot { height: auto; padding: 0 1; }
    #said { border-top: solid $primary; }
    #foot { color: $text-muted; }
    .head { text-style: bold; color: $primary; margin-top: 1; }
    #comment { display: none; }
    #comment.open { display: block; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1,minus", "rate(-1)"),
        Binding("2,0", "rate(0)"),
        Binding("3,plus,equals_sign", "rate(1)"),
        Binding("a", "prefer(0)"),
        Binding("b", "prefer(1)"),
        Binding("t", "tie"),
        Binding("c", "comment"),
        Binding("u", "undo"),
        Binding("s", "skip"),
        Binding("q", "end"),
        Binding("k", "aspect(-1)"),
        Binding("j", "aspect(1)"),
        Binding("pagedown,space", "page(1)"),
        Binding("pageup", "page(-1)"),
        Binding("escape", "close_comment"),
    ]

    def __init__(self, session: AnnotationSession, first: JudgingCard | None = None) -> None:
        super().__init__()
        self.session, self.judged = session, 0
        self._first = first
        self._card: JudgingCard | None = None
        self._ratings = dict[str, int]()
        self._aspect, self._comment = 0, ""
        self._since = 0.0

    def compose(self) -> ComposeResult:
        """Lay out the texts, what is said of them, the comment and the footer."""
        yield VerticalScroll(id="texts")
        yield Static(id="said", markup=False)
        yield Input(id="comment", placeholder="Comment; Enter keeps it, Escape does not")
        yield Static(id="foot", markup=False)

    async def on_mount(self) -> None:
        """Show the first item."""
        await self._next(self._first)

    async def action_rate(self, rating: int) -> None:
        """Rate the aspect at hand; after the last one the item is judged."""
        card = self._card
        if card is None or not card.aspects:
            return
        self._ratings[card.aspects[self._aspect]] = rating
        left = [n for n, name in enumerate(card.aspects) if name not in self._ratings]
        if left:
            self._aspect = next((n for n in left if n > self._aspect), left[0])
            self._tell()
        else:
            await self._judge(Opinion(ratings=self._ratings, comment=self._comment))

    async def action_prefer(self, better: int) -> None:
        """Prefer the answer that is shown as A, or as B."""
        await self._vote(better)

    async def action_tie(self) -> None:
        """Call the two answers equally good."""
        await self._vote(None)

    async def action_skip(self) -> None:
        """Leave the item to others."""
        if self._card is not None and not self._refused(self.session.skip):
            await self._next()

    async def action_undo(self) -> None:
        """Take back the last judgement, and judge that item again."""
        try:
            undone = self.session.undo()
        except LedgerError as error:
            self._tell(str(error))
            return
        if not undone:
            self._tell("there is nothing to take back")
            return
        self.judged -= 1
        await self._next()

    def action_aspect(self, step: int) -> None:
        """Go to another aspect."""
        if self._card is not None and self._card.aspects:
            self._aspect = (self._aspect + step) % len(self._card.aspects)
            self._tell()

    def action_page(self, step: int) -> None:
        """Scroll the texts."""
        texts = self.query_one("#texts", VerticalScroll)
        (texts.scroll_page_down if step > 0 else texts.scroll_page_up)(animate=False)

    def action_comment(self) -> None:
        """Write a comment on the item."""
        if self._card is not None:
            field = self.query_one("#comment", Input)
            field.value = self._comment
            field.add_class("open")
            field.focus()

    def action_close_comment(self) -> None:
        """Leave the comment as it was."""
        self.query_one("#comment", Input).remove_class("open")
        self.query_one("#texts").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the comment; it is stored with the judgement."""
        self._comment = event.value.strip()
        self.action_close_comment()
        self._tell()

    def action_end(self) -> None:
        """End; what was judged is kept."""
        self.exit(self.judged)

    async def _vote(self, better: int | None) -> None:
        card = self._card
        if card is not None and len(card.answers) > 1:
            await self._judge(Opinion(ratings={}, better=better, comment=self._comment))

    async def _judge(self, opinion: Opinion) -> None:
        took = time.monotonic() - self._since
        if not self._refused(lambda card: self.session.judge(card, opinion, took)):
            self.judged += 1
            await self._next()

    def _refused(self, action: Callable[[JudgingCard], None]) -> bool:
        """Do something with the item; tell why, if that cannot be done."""
        card = self._card
        if card is None:
            return True
        try:
            action(card)
        except (LedgerError, InputError) as error:
            self._tell(str(error))
            return True
        return False

    async def _next(self, card: JudgingCard | None = None) -> None:
        self._ratings, self._aspect, self._comment = {}, 0, ""
        self._card = card or self.session.next_card()
        texts = self.query_one("#texts", VerticalScroll)
        await texts.remove_children()
        await texts.mount_all(_blocks(self._card))
        texts.scroll_home(animate=False)
        texts.focus()
        self._since = time.monotonic()
        self._tell()

    def _tell(self, note: str = "") -> None:
        """Show what is said so far, the progress and the agreement."""
        said = _said(self._card, self._ratings, self._aspect)
        if self._card is not None and self._card.aspects:
            said += self._levels(self._card.aspects[self._aspect])
        if self._comment:
            said += f"\ncomment: {visible(self._comment)}"
        if note:
            said += f"\n{visible(note)}"
        self.query_one("#said", Static).update(said)
        progress, agreement = self.session.progress(), self.session.agreement()
        self.query_one("#foot", Static).update(
            f"{self.session.run} as {self.session.annotator}: {progress.sentence}\n"
            f"{agreement.sentence}\n{_keys(self._card)}"
        )

    def _levels(self, aspect: str) -> str:
        """Return what the rubric says of an aspect."""
        known = self.session.rubric.get(aspect)
        if known is None:
            return ""
        levels = known.levels
        told = {
            " ": known.criteria,
            "-": levels.failure,
            "0": levels.moderate,
            "+": levels.success,
        }
        return "".join(f"\n  {key} {one_line(text, limit=RUBRIC)}" for key, text in told.items())


def _blocks(card: JudgingCard | None) -> Iterable[Static]:
    """Yield the texts of an item under their headings."""
    if card is None:
        yield Static(NOTHING_LEFT, markup=False)
        return
    texts = [(f"Prompt ({card.task})", _conversation(card))]
    if card.reference:
        texts.append(("Reference", card.reference))
    names = ["Answer"] if len(card.answers) == 1 else [f"Answer {name}" for name in NAMES]
    texts += zip(names, card.answers, strict=True)
    for name, text in texts:
        yield Static(name, markup=False, classes="head")
        yield Static(visible(text), markup=False, classes="text")


def _conversation(card: JudgingCard) -> str:
    if len(card.prompt) == 1:
        return card.prompt[0].content
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in card.prompt)


def _said(card: JudgingCard | None, ratings: dict[str, int], at: int) -> str:
    if card is None:
        return ""
    if not card.aspects:
        return "Which answer is better?"
    return "\n".join(
        f"{'>' if number == at else ' '} {visible(name)}: "
        f"{LEVELS[ratings[name]] if name in ratings else '?'}"
        for number, name in enumerate(card.aspects)
    )


def _keys(card: JudgingCard | None) -> str:
    if card is None:
        return "u undo  q quit"
    judge = "1 2 3 or - 0 +  rate" if card.aspects else "a b better  t tie"
    return f"{judge}  c comment  u undo  s skip  q quit"
