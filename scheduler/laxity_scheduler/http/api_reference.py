"""The API's reference as one page of plain HTML: no script, nothing from another origin, readable offline.

It is the OpenAPI document, shown; a token is needed for neither, as both stand in the source.
"""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

Json = Mapping[str, Any]
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
    "code{font-size:.95em}h2{margin:2rem 0 .3rem;font-size:1.1rem}"
    "td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}"
)


def page(openapi: Json) -> str:
    """Every call of this OpenAPI document: what it does, takes and answers."""
    title = escape(str(openapi["info"]["title"]))
    calls = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>{''.join(_call(call))}"
        for path, methods in openapi["paths"].items()
        for method, call in methods.items()
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title} API</title>'
        f"<style>{STYLE}</style><h1>{title} API</h1>"
        "<p>All calls but <code>/healthz</code>, <code>/readyz</code> and this page want "
        "<code>Authorization: Bearer TOKEN</code>. Machines read "
        '<a href="openapi.json">openapi.json</a>.</p>' + "".join(calls)
    )


def _call(call: Json) -> Iterator[str]:
    yield f"<p>{escape(str(call.get('description', '')))}</p><table>"
    for parameter in call.get("parameters", ()):
        yield _row(f"{parameter['name']} ({parameter['in']})", _kind(parameter.get("schema", {})))
    if "requestBody" in call:
        (content,) = call["requestBody"]["content"].values()
        yield _row("body", _kind(content.get("schema", {})))
    for code, answer in call["responses"].items():
        yield _row(code, str(answer.get("description", "")))
    yield "</table>"


def _row(name: str, words: str) -> str:
    return f"<tr><td><code>{escape(name)}</code><td>{escape(words)}"


def _kind(schema: Json) -> str:
    """A schema in a few words: its name, its type, or those that it may be."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    return " ".join(str(schema[key]) for key in ("type", "description") if key in schema)
