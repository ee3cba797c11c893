"""The files of the page: plain HTML, CSS and JavaScript modules beside this module, sent as they are.

The policy lets a browser run and load nothing that does not come from this service.
"""

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("page")
INDEX: Final = "index.html"
MEDIA_TYPES: Final = {".css": "text/css", ".html": "text/html", ".js": "text/javascript"}
FILES: Final = frozenset(
    path.name for path in FOLDER.iterdir() if path.suffix in MEDIA_TYPES and path.name != INDEX
)
PAGE_PATHS: Final = frozenset(f"/page/{name}" for name in FILES)
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def embedded_headers(origins: str) -> dict[str, str]:
    """The headers of a page that these origins, separated by spaces, may show in a frame."""
    policy = HEADERS["Content-Security-Policy"]
    allowed = policy.replace("frame-ancestors 'none'", f"frame-ancestors {origins}")
    return {**HEADERS, "Content-Security-Policy": allowed}


def read_page_file(name: str) -> tuple[bytes, str]:
    """Content and media type of a file of the page; KeyError if the page has no such file."""
    if name not in FILES and name != INDEX:
        raise KeyError(name)
    path = FOLDER / name
    return path.read_bytes(), MEDIA_TYPES[path.suffix]
