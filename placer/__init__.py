"""placer: decide which MoE experts go on the GPU and how many KV tokens are kept, together.

The commands are functions here: ``placer.inspect``, ``placer.solve`` and so on (docs/reference.md). Each is loaded
when it is first used.
"""

from importlib import import_module

from placer.errors import BadInputError, InfeasibleError, MissingComponentError, PlacerError

TYPE_CHECKING = False
"""True for type checkers; `typing` itself would take longer to load than all that is needed before Ctrl-C is heard."""

if TYPE_CHECKING:
    from placer.api.bench import bench
    from placer.api.bench_growth import bench_growth
    from placer.api.bench_instances import bench_instances
    from placer.api.calibrate import calibrate
    from placer.api.compare import compare
    from placer.api.evaluate import evaluate
    from placer.api.explain import explain
    from placer.api.export import export
    from placer.api.export_check import export_check
    from placer.api.hardware import hardware
    from placer.api.hardware_list import hardware_list
    from placer.api.inspect import inspect
    from placer.api.preflight import preflight
    from placer.api.profile import profile
    from placer.api.profile_merge import profile_merge
    from placer.api.report import report
    from placer.api.solve import solve
    from placer.api.trace import trace
    from placer.api.trace_bench import trace_bench
    from placer.api.trace_compare import trace_compare
    from placer.api.trace_import import trace_import
    from placer.api.trace_info import trace_info
    from placer.api.trace_record import trace_record
    from placer.api.trace_synth import trace_synth
    from placer.api.verify import verify
    from placer.api.verify_kt_log import verify_kt_log

__version__ = "0.1.0"
__all__ = [
    "BadInputError",
    "InfeasibleError",
    "MissingComponentError",
    "PlacerError",
    "bench",
    "bench_growth",
    "bench_instances",
    "calibrate",
    "compare",
    "evaluate",
    "explain",
    "export",
    "export_check",
    "hardware",
    "hardware_list",
    "inspect",
    "preflight",
    "profile",
    "profile_merge",
    "report",
    "solve",
    "trace",
    "trace_bench",
    "trace_compare",
    "trace_import",
    "trace_info",
    "trace_record",
    "trace_synth",
    "verify",
    "verify_kt_log",
]


if not TYPE_CHECKING:
    # Type checkers read the imports above, and know of no other name.

    def __getattr__(name: str) -> object:
        """The function called ``name``, from its file in `placer.api`."""
        if name not in __all__:
            raise AttributeError(f"module 'placer' has no attribute {name!r}")
        function = getattr(import_module(f"placer.api.{name}"), name)
        globals()[name] = function
        return function


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
