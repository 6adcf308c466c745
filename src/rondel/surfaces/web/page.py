"""The files of the page, from the folder that the build fills. Nothing here comes from the internet."""

from __future__ import annotations

import mimetypes
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, Response

FOLDER = Path(__file__).parent / "static"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
MISSING = """<!doctype html><meta charset="utf-8"><title>Rondel</title>
<p>The page was not built. In a checkout, run <code>make run</code>; it needs the npm registry once.</p>"""


class PageFiles:
    """Finds the file for a request: the page itself, or an asset by its exact name."""

    def __init__(self) -> None:
        found = FOLDER.iterdir() if FOLDER.is_dir() else ()
        self._assets = {path.name: path for path in found if path.is_file()}

    def find(self, request: Request) -> Response | None:
        path = request.url.path
        if request.method not in ("GET", "HEAD"):
            return None
        if path == "/":
            if "index.html" not in self._assets:
                return Response(MISSING, 503, HEADERS, "text/html; charset=utf-8")
            return FileResponse(self._assets["index.html"], headers={**HEADERS, "cache-control": "no-cache"})
        name = path.removeprefix("/assets/") if path.startswith("/assets/") else ""
        if path == "/favicon.ico":
            name = "icon.svg"
        if not name:
            return None
        file = self._assets.get(name)
        if file is None:
            return Response("there is no such file", 404, HEADERS, "text/plain; charset=utf-8")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        # The build puts a hash of the content into each name.
        return FileResponse(
            file, media_type=kind, headers={**HEADERS, "cache-control": "public, max-age=31536000, immutable"}
        )
