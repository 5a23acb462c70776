"""Telling how long something took."""


def duration(seconds: float | None) -> str:
    """Return a duration for a table; None means unknown."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours}:{minutes:02}:{rest:02.0f}"
    return f"{minutes}:{rest:02.0f}" if minutes else f"{rest:.1f} s"
