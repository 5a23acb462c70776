"""What a run takes at a scale, as lines of at most 80 columns."""

from collections.abc import Iterator

from .plan_lines import short
from .scale import RATED, ScaledRun, ScaledVerb

FEW = 100


def scale_lines(scale: ScaledRun) -> list[str]:
    """Return all of it."""
    return [*_head(scale), *_table(scale), *_totals(scale), *_ceilings(scale), *_assumed(scale)]


def _head(scale: ScaledRun) -> Iterator[str]:
    turns = f"{scale.iterations} iteration{'' if scale.iterations == 1 else 's'}"
    told = ", which are invented" if scale.invented else ""
    yield f"scale: {scale.recipe}, {turns} of {scale.prompts:,} prompts{told}"


def _table(scale: ScaledRun) -> Iterator[str]:
    yield _row("", "requests", "read", "drawn", "trained", "GPU-h", "rows", "bytes")
    yield from (_verb(verb) for verb in (*scale.verbs, scale.total))


def _verb(verb: ScaledVerb) -> str:
    numbers = (
        *(verb.requests, verb.prompt_tokens, verb.answer_tokens, verb.trained),
        *(verb.gpu_hours, verb.rows, verb.row_bytes),
    )
    return _row(verb.verb, *(short(number) if number else "" for number in numbers))


def _row(name: str, *cells: str) -> str:
    return f"  {name[:14]:<14}{''.join(f'{cell:>9}' for cell in cells)}".rstrip()


def _totals(scale: ScaledRun) -> Iterator[str]:
    total, rates = scale.total, scale.rates
    yield f"  wall time: {_time(scale.hours)} on {rates.gpus:,} GPUs that never wait"
    dollars = total.gpu_hours * rates.gpu_hour
    yield f"  money: {dollars:,.0f} for GPU-hours, {total.money:,.0f} for models at endpoints"
    if scale.unpriced:
        yield f"  no price is known of {', '.join(scale.unpriced)} (prices.models)"[:80]
    yield (
        f"  journal: {total.units:,} units, {short(scale.journal_bytes)}B; "
        f"at most {short(total.transactions)} transactions"
    )


def _time(hours: float) -> str:
    return f"{hours:,.1f} hours" if hours < FEW else f"{hours / 24:,.1f} days"


def _ceilings(scale: ScaledRun) -> Iterator[str]:
    yield "one head of a run, what gives way first at the top:"
    for ceiling in scale.ceilings:
        yield f"  {ceiling.share:>7.2%} of {short(ceiling.limit)} {ceiling.what}"[:80]
    if any(ceiling.share > 1 for ceiling in scale.ceilings):
        yield "  more than 100%: divide the prompts among several runs"


def _assumed(scale: ScaledRun) -> Iterator[str]:
    rates = scale.rates
    yield f"assumed, for one GPU and a model of {RATED:.0f}B parameters, in tokens a second:"
    yield (
        f"  drawn {rates.drawn_s:,.0f}, read {rates.read_s:,.0f}, "
        f"trained {rates.trained_s:,.0f}; {rates.gpu_hour:.2f} for an hour"
    )
    if not scale.measured:
        read = f", of a prompt {rates.prompt_tokens}" if scale.invented else ""
        yield f"  tokens of an answer {rates.answer_tokens}{read}"
