"""The configuration's JSON Schema, by which editors check and complete a YAML file."""

from typing import Any

from pydantic import TypeAdapter

from .models import ModelsByName
from .read import EXTENDS, presets
from .schema import RunConfig
from .variants import variants

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = "#/$defs/{model}"


def json_schema() -> dict[str, Any]:
    """Return the schema of a configuration file, with the settings of every shipped recipe."""
    schema: dict[str, Any] = RunConfig.model_json_schema(ref_template=REFERENCE)
    kinds = variants()
    for name, kind in kinds.items():
        own = TypeAdapter(kind).json_schema(ref_template=REFERENCE)
        own["properties"]["name"]["const"] = name
        schema["$defs"] |= own.pop("$defs", {})
        schema["$defs"][kind.__name__] = own
    del schema["$defs"]["Recipe"]
    function = {
        "type": "object",
        "description": "a function of your own, as ./FILE.py:NAME",
        "properties": {"name": {"type": "string", "pattern": ":"}},
        "required": ["name"],
    }
    shipped = [{"$ref": REFERENCE.format(model=kind.__name__)} for kind in kinds.values()]
    schema["properties"]["recipe"] = {"anyOf": [*shipped, function]}
    models = ModelsByName.model_json_schema(ref_template=REFERENCE)
    schema["$defs"] |= models["$defs"]
    schema["properties"] |= models["properties"]
    schema["properties"][EXTENDS] = {
        "type": "string",
        "description": f"the preset world ({', '.join(presets())}) or file that this one builds on",
    }
    return {"$schema": DIALECT, **schema}
