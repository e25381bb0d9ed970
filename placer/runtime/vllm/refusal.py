"""Why a server does not start: always one line, which says what to do."""


class Refusal(RuntimeError):  # noqa: N818 - what it is; every error of a start is one
    """The plan cannot be honoured exactly, so nothing is loaded."""

    def __init__(self, what: str, cure: str = "") -> None:
        super().__init__(f"placer refuses to start vLLM: {what}" + (f": {cure}" if cure else ""))
