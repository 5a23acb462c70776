"""Where workers on other machines join a run, and how both prove who they are."""

from typing import Self

from pydantic import model_validator

from .section import Place, Section, cosmetic, live


class WorkersConfig(Section):
    """Where workers on other machines join a run (`lpfloop worker --join`)."""

    listen: str | None = cosmetic(
        None, "address of this machine where workers join, as HOST:PORT, such as 0.0.0.0:7377"
    )
    token_file: Place | None = cosmetic(
        None, "file with the token that workers must know; default: join.token of the run, made"
    )
    tls_certificate: Place | None = cosmetic(
        None, "PEM file with this machine's certificate: connections are encrypted then"
    )
    tls_key: Place | None = cosmetic(None, "PEM file with the certificate's key")
    patience_s: float = live(
        86_400.0, "how long a model may have no worker at all, in seconds", gt=0
    )

    @model_validator(mode="after")
    def _whole_pair(self) -> Self:
        if (self.tls_certificate is None) is not (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together; set both, or neither")
        return self
