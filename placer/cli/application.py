"""The applications that commands belong to; every command of theirs takes -q and -v."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from placer.cli.terminal import set_detail

Command = TypeVar("Command", bound=Callable[..., Any])

_DETAIL = {
    "quiet": Annotated[bool, typer.Option("-q", "--quiet", help="Print the verdict and errors alone.")],
    "verbose": Annotated[bool, typer.Option("-v", "--verbose", help="Print everything there is to say.")],
}


class _Application(typer.Typer):
    """An application whose commands take how much they print."""

    def command(self, name: str | None = None, **options: Any) -> Callable[[Command], Command]:
        """As Typer's, with -q and -v added."""
        return _registered(functools.partial(super().command, name, **options))

    def callback(self, **options: Any) -> Callable[[Command], Command]:
        """As Typer's; -q and -v are added where it is a command by itself."""
        if self.info.invoke_without_command is True:
            return _registered(functools.partial(super().callback, **options))
        return super().callback(**options)


def _registered(register: Callable[..., Callable[[Any], Any]]) -> Callable[[Command], Command]:
    def decorate(function: Command) -> Command:
        # Lists of commands cut what is not said to be short, whatever the width of the terminal.
        first, _, _ = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
        register(short_help=" ".join(first.split()))(_with_detail(function))
        return function

    return decorate


def _with_detail(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with two more options, which it never sees."""

    @functools.wraps(function)
    def run(*args: Any, quiet: bool, verbose: bool, **kwargs: Any) -> Any:
        set_detail(quiet=quiet, verbose=verbose)
        return function(*args, **kwargs)

    known = inspect.signature(function)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in _DETAIL.items()
    ]
    run.__signature__ = known.replace(parameters=[*known.parameters.values(), *added])  # type: ignore[attr-defined]
    run.__annotations__ = {**function.__annotations__, **_DETAIL}
    return run


app = _Application(
    name="placer",
    help="Split GPU memory between hot MoE experts and KV cache, with a proven bound.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
trace_app = _Application(
    help="Routing traces: import, record, judge, compare, synthesise.", no_args_is_help=True
)
app.add_typer(trace_app, name="trace")
profile_app = _Application(invoke_without_command=True)
app.add_typer(profile_app, name="profile")
