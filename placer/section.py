"""A part of a document: strict about what it knows, and keeping what it does not."""

from typing import Any

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Section(BaseModel):
    """A part of the document. Unknown keys are kept: a later minor version survives a round trip."""

    model_config = ConfigDict(
        extra="allow", frozen=True, allow_inf_nan=False, ser_json_inf_nan="constants", validate_default=True
    )

    @model_serializer(mode="wrap")
    def _without_absent(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out optional fields that were never given; a null that was given stays."""
        absent = {
            field.alias or name
            for name, field in type(self).model_fields.items()
            if name not in self.model_fields_set and getattr(self, name) is None
        }
        return {key: value for key, value in write(self).items() if key not in absent}
