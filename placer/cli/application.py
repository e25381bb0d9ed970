"""The applications that commands belong to."""

import typer

app = typer.Typer(
    name="placer",
    help="Split GPU memory between hot MoE experts and KV cache, with a proven bound.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
trace_app = typer.Typer(
    help="Routing traces: import, record, judge, compare, synthesise.", no_args_is_help=True
)
app.add_typer(trace_app, name="trace")
profile_app = typer.Typer(invoke_without_command=True)
app.add_typer(profile_app, name="profile")
