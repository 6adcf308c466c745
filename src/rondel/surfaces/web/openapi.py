"""The OpenAPI description, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from .route import Nothing, Route


class Error(msgspec.Struct, frozen=True):
    """What is wrong, in one sentence."""

    error: str


def description(routes: Sequence[Route], version: str) -> dict[str, Any]:
    types = [kind for route in routes for kind in (route.body, route.query, route.returns)]
    schemas, components = msgspec.json.schema_components(
        [*types, Error], ref_template="#/components/schemas/{name}", schema_hook=lambda kind: {"type": "string"}
    )
    of = dict(zip(map(id, types), schemas, strict=False))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, of, schemas[-1])
    return {
        "openapi": "3.1.0",
        "info": {"title": "Rondel", "version": version, "description": "Talk to agents, and see what they did."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, of: dict[int, Any], error: Any) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    if route.query is not Nothing:
        kind = msgspec.json.schema(route.query)
        properties = next(iter(kind["$defs"].values()))["properties"]
        required = next(iter(kind["$defs"].values())).get("required", ())
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in properties.items()
        ]
    schema = of[id(route.returns)] if route.media == "application/json" else {"type": "string"}
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "Done.", "content": {route.media: {"schema": schema}}},
            "default": {"description": "Not done.", "content": {"application/json": {"schema": error}}},
        },
        "x-rights": route.rights,
    }
    if route.body is not Nothing:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": of[id(route.body)]}},
        }
    if route.rights != "public":
        operation["security"] = [{"key": []}]
    return operation
