"""What a local cluster installs without looking for unknown fields has none."""

from __future__ import annotations

from dataclasses import replace

from trainyard import kinds
from trainyard.app.local import CRD
from trainyard.client import Api
from trainyard.client.request import create
from trainyard.server import Server


async def test_our_definitions_have_no_field_that_the_server_does_not_know() -> None:
    server = Server()
    await server.start()
    api = Api(server.url)
    try:
        for kind in kinds.ALL:
            await api.send(replace(create(CRD, "", kinds.crd(kind)), query=(("fieldValidation", "Strict"),)))
    finally:
        await api.close()
        await server.stop()
