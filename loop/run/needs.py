"""What a verb needs of the settings of the recipe that calls it, and which models it asks.

Both are declared beside the verb.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...configs.recipes import Recipe

Needs = Mapping[Callable[..., Any], tuple[type[Recipe], ...]]
"""By verb: the classes that must be among the bases of the settings. A module calls it `NEEDS`."""

Asks = Mapping[Callable[..., Any], tuple[str, ...]]
"""By verb: the roles of the models that it asks, such as critic. A module calls it `ASKS`."""
