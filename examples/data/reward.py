"""A reward of your own: short answers that end in a full stop. This file is yours, so it is trusted and runs as it is."""


def reward(trajectory) -> float:
    """1.0 for one short sentence, a part of it for less."""
    words = trajectory.text.split()
    if not words:
        return 0.0
    short = len(words) <= trajectory.row["max_words"]
    ends = trajectory.text.strip().endswith(".")
    return 0.5 * short + 0.5 * ends
