"""What a campaign found of one reader, in numbers."""

from dataclasses import dataclass, field

from fuzzing.trial import Trial


@dataclass
class Tally:
    """Counts over the inputs so far.

    Attributes
    ----------
    inputs, accepted, refused
        Inputs that were read; how many gave a result, and how many an error in words.
    slowest_seconds, seconds
        The longest trial, and wall clock of the whole campaign.
    faults
        For every distinct fault the inputs that showed it.
    left_behind
        Files that a reader left beside its input.
    """

    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    slowest_seconds: float = 0.0
    seconds: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    left_behind: list[str] = field(default_factory=list)

    def add(self, trial: Trial) -> bool:
        """Count ``trial``; whether it shows a fault that was not seen before."""
        self.inputs += 1
        self.accepted += trial.verdict == "accepted"
        self.refused += trial.verdict == "refused"
        self.slowest_seconds = max(self.slowest_seconds, trial.seconds)
        if trial.verdict != "fault":
            return False
        self.faults[trial.fault] = self.faults.get(trial.fault, 0) + 1
        return self.faults[trial.fault] == 1

    def joined(self, other: "Tally") -> "Tally":
        """This tally and that of further inputs."""
        return Tally(
            inputs=self.inputs + other.inputs,
            accepted=self.accepted + other.accepted,
            refused=self.refused + other.refused,
            slowest_seconds=max(self.slowest_seconds, other.slowest_seconds),
            seconds=self.seconds + other.seconds,
            faults={
                fault: self.faults.get(fault, 0) + other.faults.get(fault, 0)
                for fault in self.faults | other.faults
            },
            left_behind=sorted({*self.left_behind, *other.left_behind}),
        )
