"""`placer.hardware`: this machine."""

from placer.api.checked import checked
from placer.api.facts import Facts
from placer.api.opened import Source, opened
from placer.hardware_document import hardware_document
from placer.profiler.profile import Profile, read_profile


@checked
def hardware(*, profile: Profile | Source | None = None) -> Facts:
    """This machine: CPU, caches, memory, and which kernels run here.

    With ``profile`` also what share of its roofline each kernel of the profile reached.

    Raises
    ------
    BadInputError
        When the profile cannot be used.
    """
    return Facts(hardware_document(None if profile is None else opened(profile, read_profile)))
