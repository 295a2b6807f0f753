"""The names of agents and policies as figures and reports show them."""

LABELS = {
    "oracle-ts": "OracleTS",
    "ada-ts": "AdaTS",
    "meta-ts": "MetaTS",
    "ts": "TS",
    "ada-ts+": "AdaTS+",
    "ada-ts-": "AdaTS−",
    "ada-grid": "AdaTS, spread learned",
    "ada-narrow": "AdaTS, spread 0.05σ",
    "ada-broad": "AdaTS, spread 1σ",
    "ada-ucb": "learned prior, Bayes-UCB",
    "ada-index": "learned prior, finite horizon",
    "ada-far": "learned prior, far-sighted",
    "ada-greedy": "learned prior, greedy",
}


def label_of(agent: str) -> str:
    """The label of an agent; an agent of another name is shown by that name."""
    return LABELS.get(agent, agent)
