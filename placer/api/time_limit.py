"""How long a solver may take."""


def solver_seconds(time_limit: float | None, prove: bool) -> float:
    """Seconds as given, otherwise 30, or 120 to prove."""
    return time_limit if time_limit is not None else 120.0 if prove else 30.0
