from tests.executors.sandbox.conftest import ordinary_runner, root_runner, run_as

__all__ = ["ordinary_runner", "root_runner", "run_as"]
