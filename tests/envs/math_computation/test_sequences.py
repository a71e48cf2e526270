"""A sequence goes on as the rule in the prompt says, or by its constant step."""

from __future__ import annotations

import itertools
import re

import pytest

from posttrain.envs.math_computation.sequences import AHEAD, NextTerm


def go_on(prompt: str, ahead: int) -> int:
    """The term ``ahead`` places after those in the prompt, from the prompt alone."""
    terms = [int(n) for n in max(re.findall(r"-?\d+(?:, -?\d+)+", prompt), key=len).split(", ")]
    rule = re.search(r"Each number is (\d+) times the one before, (plus|minus) (\d+)( times the one before that)?\.", prompt)
    for _ in range(ahead):
        if "sum of the two before" in prompt:
            terms.append(terms[-1] + terms[-2])
        elif step := re.search(r"(Add|Subtract) (\d+) each time", prompt):
            terms.append(terms[-1] + (1 if step[1] == "Add" else -1) * int(step[2]))
        elif rule:
            sign = 1 if rule[2] == "plus" else -1
            terms.append(int(rule[1]) * terms[-1] + sign * int(rule[3]) * (terms[-2] if rule[4] else 1))
        else:
            assert len({b - a for a, b in itertools.pairwise(terms)}) == 1
            terms.append(2 * terms[-1] - terms[-2])
    return terms[-1]


@pytest.mark.parametrize("level", range(10))
def test_sequences_go_on_by_their_rule(level: int) -> None:
    family = NextTerm()
    for seed in range(60):
        task = family.generate(seed, level)
        assert go_on(task.prompt[0].content, AHEAD[level]) == task.answer
        for line in family.oracle(task).turns[0].content.split("\n")[:-1]:
            for piece in line.split(", "):
                left, right = piece.split(" = ")
                assert eval(left) == int(right)
