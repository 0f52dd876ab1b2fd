"""A stand-in of the Hub: the requests that `huggingface_hub` makes to create a repository and to upload files."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hub:
    """What was uploaded, by repository and path. The requests, in order."""

    def __init__(self):
        self.files: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        self.refuses = ""
        """A part of the address of requests that get status 403."""
        self.address = ""
        self._blobs: dict[str, bytes] = {}

    def environment(self) -> dict[str, str]:
        """Variables with which a process uploads to this Hub. Xet storage is a protocol of its own."""
        return {"HF_ENDPOINT": self.address, "HF_TOKEN": "hf_secret", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}

    def answer(self, method: str, path: str, body: bytes) -> Any:
        """The answer to a request as JSON, None if there is no such address."""
        self.requests.append(f"{method} {path}")
        if path == "/api/whoami-v2":
            return {"type": "user", "name": "me", "orgs": []}
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.files.setdefault(name, {})
            return {"url": f"{self.address}/{name}"}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if path.startswith("/blob/"):
            self._blobs[path.removeprefix("/blob/")] = body
            return {}
        if path.endswith(".git/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            links = [{"upload": {"href": f"{self.address}/blob/{each['oid']}"}} for each in objects]
            return {"objects": [each | {"actions": link} for each, link in zip(objects, links, strict=True)]}
        found = re.fullmatch(r"/api/models/(.+)/(preupload|commit)/main", path)
        if found and found[2] == "preupload":
            return {"files": [self._mode(each["path"]) for each in json.loads(body)["files"]]}
        if found:
            for line in map(json.loads, body.splitlines()):
                self._commit(self.files[found[1]], line["key"], line["value"])
            return {"commitUrl": f"{self.address}/{found[1]}/commit/1", "commitOid": "1" * 40}
        return None

    def _mode(self, path: str) -> dict[str, Any]:
        return {
            "path": path,
            "uploadMode": "lfs" if path.endswith(".safetensors") else "regular",
            "shouldIgnore": False,
        }

    def _commit(self, files: dict[str, bytes], kind: str, value: dict[str, str]) -> None:
        if kind == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif kind == "lfsFile":
            files[value["path"]] = self._blobs[value["oid"]]


@contextmanager
def local_hub() -> Iterator[Hub]:
    """A Hub on this machine, until the end of the block."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            if "chunked" in self.headers.get("Transfer-Encoding", ""):
                body = b"".join(self._chunks())
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            refused = hub.refuses and hub.refuses in self.path
            path = self.path.partition("?")[0]
            found = None if refused else hub.answer(self.command, path, body)
            data = json.dumps({"error": "You may not do this."} if found is None else found).encode()
            self.send_response(403 if refused else 404 if found is None else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _chunks(self) -> Iterator[bytes]:
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()

        do_GET = do_POST = do_PUT = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
