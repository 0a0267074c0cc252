"""Benchmarks of output processing: for scripts/bench.py."""

from __future__ import annotations

import time

from acp_agent.output.filters import load_filters
from acp_agent.output.sanitize import sanitize_output

__all__ = ["filter_log", "long_pytest_log"]

FAILURE = """\
____________________________ test_case_{number} ____________________________

    def test_case_{number}():
>       assert answer() == 42
E       assert 41 == 42
E        +  where 41 = answer()

tests/unit/test_module_{module}.py:{number}: AssertionError"""


def long_pytest_log(lines: int = 100_000) -> str:
    """The output of `pytest -v` for this many tests, of which one in 5,000 fails."""
    failing = range(2500, lines, 5000)
    shown = [
        "============================= test session starts ==============================",
        f"collected {lines} items",
        "",
    ]
    for number in range(lines):
        state = "FAILED" if number in failing else "PASSED"
        percent = number * 100 // lines
        shown.append(
            f"tests/unit/test_module_{number // 100}.py::test_error_case_{number} {state}      [{percent:3d}%]"
        )
    shown += ["", "=================================== FAILURES ==================================="]
    shown += [FAILURE.format(number=number, module=number // 100) for number in failing]
    shown.append(
        f"================ {len(failing)} failed, {lines - len(failing)} passed in 61.20s (0:01:01) ================"
    )
    return "\n".join(shown) + "\n"


def filter_log() -> float:
    """Seconds from the raw log of 100,000 tests to what the model reads. Raises RuntimeError if a failure is lost."""
    log = long_pytest_log()
    filters, _ = load_filters()
    begun = time.perf_counter()
    filtered = filters.apply(sanitize_output(log), "pytest -v", exit_code=1)
    took = time.perf_counter() - begun
    if filtered.text.count("FAILED") != 20 or filtered.text.count("E       assert") != 20:
        raise RuntimeError("a failure was lost")
    return took
