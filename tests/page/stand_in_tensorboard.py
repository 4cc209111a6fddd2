"""An image whose `tensorboard` stands in for the real one: a page, its data, a WebSocket, and what it was asked."""

from __future__ import annotations

import sys
from pathlib import Path

from trainyard.objects import Json

PROGRAM = """
import argparse, json
from aiohttp import WSMsgType, web

seen = []
PAGE = '''<!doctype html><title>TensorBoard</title><h1>TensorBoard stands here</h1><p id="data"></p><p id="talk"></p>
<script>
fetch('data').then((answer) => answer.text()).then((text) => { document.getElementById('data').textContent = text; });
const talk = new WebSocket(`ws://${location.host}/live`);
talk.onopen = () => talk.send('said by the page');
talk.onmessage = (event) => { document.getElementById('talk').textContent = event.data; };
</script>'''


async def answer(request):
    seen.append({"path": request.path_qs, "headers": dict(request.headers)})
    if request.path == "/live":
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type is WSMsgType.TEXT:
                await socket.send_str(f"heard: {message.data}")
        return socket
    if request.path == "/seen":
        return web.json_response(seen)
    if request.path == "/":
        return web.Response(text=PAGE, content_type="text/html")
    return web.Response(body=await request.read() or b"the loss falls")


options = argparse.ArgumentParser()
options.add_argument("--logdir", required=True)
options.add_argument("--host", required=True)
options.add_argument("--port", type=int, default=6006)
given = options.parse_args()
app = web.Application(client_max_size=1 << 24)
app.router.add_route("*", "/{path:.*}", answer)
web.run_app(app, host=given.host, port=given.port, print=None)
"""
IMAGES = """
images:
- match: tensorflow/tensorflow*
  providers: [{current: {}}]
  env: {PATH: "{here}/bin:/usr/bin:/bin"}
"""


def write_images(folder: Path) -> Path:
    """The catalogue with the image, written into a folder."""
    program = folder / "bin" / "tensorboard"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}{PROGRAM}")
    program.chmod(0o755)
    catalogue = folder / "images.yaml"
    catalogue.write_text(IMAGES)
    return catalogue


def board_job(name: str, folder: Path) -> Json:
    """A TfJob with a TensorBoard and a master that waits."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    container = {"name": "tensorflow", "image": "example.invalid/x", "command": command}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {
        "replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}],
        "tensorboard": {
            "logDir": "/logs",
            "volumes": [{"name": "logs", "hostPath": {"path": str(folder)}}],
            "volumeMounts": [{"name": "logs", "mountPath": "/logs"}],
        },
    }
    return {
        "apiVersion": "tensorflow.org/v1alpha1",
        "kind": "TfJob",
        "metadata": {"name": name},
        "spec": spec,
    }
