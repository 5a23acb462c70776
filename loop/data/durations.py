"""Telling how long something took."""

MINUTE_S = 59.95
"""Shorter durations have a tenth of a second; this and longer ones would round to a minute."""


def duration(seconds: float | None) -> str:
    """Return a duration for a table; None means unknown."""
    if seconds is None:
        return "?"
    if seconds < MINUTE_S:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
