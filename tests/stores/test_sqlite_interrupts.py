"""A second Ctrl-C in a program of one's own, which has no handler for it."""

from __future__ import annotations

import pytest

from tests.forked import run_script

STEP = 40  # few moments in each process: one takes tens of milliseconds, and ten times that on a busy machine


@pytest.mark.parametrize("first", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, STEP + 1))])
def test_a_program_that_is_interrupted_at_any_moment_ends_and_loses_nothing(first: int):
    ran = run_script(f"from tests.stores.interrupts import main; main({first}, {STEP})")
    assert ran.stdout == "all ended\n", ran.stderr[-2_000:]
