"""Domain names coarse enough to compare: what a benchmark's topics belong to."""

from collections.abc import Sequence

MOST_DOMAINS = 32
"""More names than this say little each, so they are grouped."""

# MMLU's topics by the subject areas of its authors (hendrycks/test, categories.py), the natural sciences and
# the social sciences taken together; MMLU-Pro's categories and GPQA, which asks for science only, likewise.
_TOPICS = {
    "mathematics": "abstract_algebra college_mathematics elementary_mathematics high_school_mathematics "
    "high_school_statistics math",
    "science": "astronomy college_biology college_chemistry college_physics conceptual_physics "
    "electrical_engineering high_school_biology high_school_chemistry high_school_physics biology chemistry "
    "physics engineering",
    "computer science": "college_computer_science computer_security high_school_computer_science "
    "machine_learning computer_science",
    "medicine": "anatomy clinical_knowledge college_medicine human_aging medical_genetics nutrition "
    "professional_medicine virology health",
    "law": "international_law jurisprudence professional_law law",
    "humanities": "formal_logic high_school_european_history high_school_us_history "
    "high_school_world_history logical_fallacies moral_disputes moral_scenarios philosophy prehistory "
    "world_religions history",
    "social science": "econometrics high_school_geography high_school_government_and_politics "
    "high_school_macroeconomics high_school_microeconomics high_school_psychology human_sexuality "
    "professional_psychology public_relations security_studies sociology us_foreign_policy economics "
    "psychology",
    "business": "business_ethics management marketing professional_accounting business",
    "general": "global_facts miscellaneous other",
}
_SUBJECTS = {topic: subject for subject, topics in _TOPICS.items() for topic in topics.split()}


def domain_names(names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """A domain per entry of ``names``, and a note where names were grouped.

    Up to `MOST_DOMAINS` different names stay as they are. Beyond, "subset/topic" becomes the topic's subject
    where the subset is a benchmark whose topics are known (MMLU, MMLU-Pro, GPQA), else the subset.
    """
    different = set(names)
    if len(different) <= MOST_DOMAINS:
        return list(names), ()
    grouped = {name: _grouped(name) for name in different}
    note = (
        f"{len(different)} domain names were grouped into {len(set(grouped.values()))} by subject or subset"
    )
    return [grouped[name] for name in names], (note,)


def _grouped(name: str) -> str:
    subset, _, topic = name.partition("/")
    benchmark = subset.lower()
    if benchmark.startswith("gpqa"):
        return "science"
    if benchmark.startswith("mmlu"):
        return _SUBJECTS.get(topic.lower().replace(" ", "_"), subset)
    return subset
