"""All alarms that an observation of a policy raises."""

from ...stores.records import Alarm
from .approval_alarms import approval_alarms
from .observed import Observation
from .signal_alarms import signal_alarms
from .style_alarms import style_alarms


def raised(seen: Observation) -> list[Alarm]:
    """Return the alarms, first the ones that stop a run."""
    found = [*approval_alarms(seen), *style_alarms(seen), *signal_alarms(seen)]
    return sorted(found, key=lambda alarm: not alarm.stops)
