"""One scripted upstream for all tests here, and one gateway for those that need no configuration of their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from .callers import Callers
from .served import Served, engines
from .upstream import WAIT_S, Upstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    with Upstream() as upstream:
        yield upstream


@pytest.fixture(scope="session")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with an engine for each dialect, and nothing else. A module that needs more has one of its own."""
    config = '[gateway.routes]\ndefault = "c"\n' + engines(upstream)
    with Served(tmp_path_factory.mktemp("gateway"), config) as served:
        yield served


@pytest.fixture(scope="module")
def web(served: Served) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web:
        yield web


@pytest.fixture(scope="module")
def callers(served: Served) -> Iterator[Callers]:
    with Callers(served.base_url) as callers:
        yield callers
