"""What the routes have in common."""

from dataclasses import dataclass

from kakeya import AsyncClient
from kakeya_http_shim.answers.answering import Answering
from kakeya_http_shim.conversations.finding import Finding
from kakeya_http_shim.models.served_models import ServedModels
from kakeya_http_shim.routes.exchange import House
from kakeya_http_shim.routes.sealing import Seals
from kakeya_http_shim.settings import HttpSettings


@dataclass(frozen=True)
class Desk:
    """What the routes work with."""

    settings: HttpSettings
    client: AsyncClient
    models: ServedModels
    answering: Answering
    finding: Finding
    house: House
    seals: Seals
