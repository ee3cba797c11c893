"""The API's reference as one page of plain HTML: no script, nothing from another origin.

It shows the OpenAPI document. Neither needs a token: both are part of the source.
"""

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

BACKTICKS: Final = re.compile(r"`([^`]+)`")
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


def reference_page(openapi: Json) -> str:
    """Every call of this OpenAPI document: what it does, takes and answers."""
    title = escape(str(openapi["info"]["title"]))
    calls = [
        f"<h2><code>{method.upper()} {escape(path)}</code></h2>{''.join(_operation_html(call))}"
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


def _operation_html(call: Json) -> Iterator[str]:
    yield f"<p>{_prose_html(str(call.get('description', '')))}</p><table>"
    for parameter in call.get("parameters", ()):
        yield _table_row(
            f"{parameter['name']} ({parameter['in']})", schema_text(parameter.get("schema", {}))
        )
    if "requestBody" in call:
        (content,) = call["requestBody"]["content"].values()
        yield _table_row("body", schema_text(content.get("schema", {})))
    for code, answer in sorted(call["responses"].items()):
        yield _table_row(code, answer_text(answer))
    yield "</table>"


def _prose_html(text: str) -> str:
    """A docstring: paragraphs, and code between backticks."""
    code = BACKTICKS.sub(r"<code>\1</code>", escape(text))
    return code.replace("\n\n", "<p>")


def _table_row(name: str, text: str) -> str:
    return f"<tr><td><code>{escape(name)}</code><td>{escape(text)}"


def answer_text(answer: Json) -> str:
    """What an answer is, and by which schema."""
    schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
    holds = f" Schema: {schema_text(schema)}." if "$ref" in schema else ""
    return f"{answer.get('description', '')}{holds}"


def schema_text(schema: Json) -> str:
    """A schema in a few words: its name, its type, or those that it may be."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(schema_text(option) for option in schema["anyOf"])
    if "items" in schema:
        return f"list of {schema_text(schema['items'])}"
    return " ".join(str(schema[key]) for key in ("type", "description") if key in schema)
