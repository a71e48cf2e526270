"""Free text under constraints that can be counted."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said
from posttrain.envs._machinery.words import WORDS
from posttrain.types import Response, Task
from posttrain.verifiers._base import Verifier
from posttrain.verifiers.constraints import Constraints

WORDINGS = (
    "Write exactly {num} different words, nothing else. {rules}",
    "Reply with {num} different words and no other text. {rules}",
    "Give a list of {num} different words, without any comment. {rules}",
    "Your reply must be {num} different words and nothing more. {rules}",
)
NUM_WORDS = (2, 3, 5, 6, 8, 10, 12, 15, 18, 24)
NUM_RULES = (2, 2, 3, 3, 4, 5, 6, 7, 8, 9)


@dataclass(frozen=True)
class WordList(Family):
    """Different words, their number fixed, under 2 to 9 rules on case, order, letters and separators. The whole reply counts."""

    @property
    def verifier(self) -> Verifier:
        return Constraints()

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        num = NUM_WORDS[level] + rng.randint(0, 1)
        rules, checks, words, mark, end = ruled(rng, num, NUM_RULES[level])
        text = mark.join(words) + end
        answer = [{"kind": "num_words", "value": num}, {"kind": "all_different"}, {"kind": "real_letters"}, *checks]
        template, wording = pick(rng, WORDINGS)
        prompt = wording.format(num=num, rules=" ".join(rules))
        size = float(NUM_WORDS[level] * NUM_RULES[level])
        private = {"words": words, "mark": mark}
        return ask(self, seed, level, template=template, prompt=prompt, answer=answer, oracle=text, size=size, private=private)

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        text: str = task.private["oracle"]
        words = task.private["words"]
        mark = task.private["mark"]
        named = next(c["value"] for c in task.answer if c["kind"] in ("first_word", "last_word", "nth_word"))
        named = named if isinstance(named, str) else named[1]
        without = [w for w in words if w.lower() != named]
        return [
            Response.of(mark.join([*words, words[-1]]), "a word twice"),
            Response.of(mark.join(words[:-1]), "one word short"),
            Response.of(f"Here you are: {text}", "a comment"),
            Response.of(f"{text}\n\n{text}", "said twice"),
            Response.of(mark.join([*without, without[0] + "s"]), "not the named word"),
            Response.of("", "empty"),
        ]

    def size(self, task: Task) -> float:
        """Words (the least number at the level) times rules."""
        return float(task.metadata["size"])


Rule = tuple[str, dict[str, Any]]
SEPARATORS = ((", ", "commas"), (" ", "single spaces"), ("-", "dashes, without spaces"), ("; ", "semicolons"))
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def ruled(rng: random.Random, num: int, num_rules: int) -> tuple[list[str], list[dict[str, Any]], list[str], str, str]:
    """(rules in words, checks, words that keep them, separator, closing mark). One rule always names a word."""
    chosen = ["named", *rng.sample(("case", "separator"), 1 if num_rules == 2 else 2)]
    others = ("no_letter", "starts", "sorted", "longest", "end", "placed")
    chosen += rng.sample(others, max(0, num_rules - len(chosen)))
    pool = list(WORDS)
    rules, checks = list[str](), list[dict[str, Any]]()

    def add(rule: str, kind: str, value: Any = None) -> None:
        rules.append(rule)
        checks.append({"kind": kind} if value is None else {"kind": kind, "value": value})

    if "no_letter" in chosen:
        letter = rng.choice("tlnso")
        pool = [w for w in pool if letter not in w]
        add(f'The letter "{letter}" must not occur.', "no_letter", letter)
    if "longest" in chosen:
        most = rng.randint(5, 6)
        pool = [w for w in pool if len(w) <= most]
        add(f"No word may have more than {most} letters.", "longest_word", most)
    words = rng.sample(pool, num)
    if "sorted" in chosen:
        words.sort()
        add("The words must be in alphabetical order.", "alphabetical")
    if "starts" in chosen:
        letter = rng.choice(words)[0]
        count = sum(w[0] == letter for w in words)
        add(f'Exactly {count} of the words must start with "{letter}".', "letter_starts", [letter, count])
    if "placed" in chosen:
        at = rng.randrange(1, min(num, len(ORDINALS)))
        add(f'The {ORDINALS[at]} word must be "{words[at]}".', "nth_word", [at + 1, words[at]])
    return finished(rng, chosen, words, rules, checks)


def finished(
    rng: random.Random, chosen: list[str], words: list[str], rules: list[str], checks: list[dict[str, Any]]
) -> tuple[list[str], list[dict[str, Any]], list[str], str, str]:
    """Adds the rules on a named word, case, separator and end."""
    at = rng.choice((0, 1, -1))
    where = {0: "first", 1: "second", -1: "last"}[at]
    rules.insert(0, f'The {where} word must be "{words[at]}".')
    checks.insert(0, {"kind": "nth_word", "value": [2, words[1]]} if at == 1 else {"kind": f"{where}_word", "value": words[at]})
    mark, end = ", ", ""
    if "case" in chosen:
        upper = rng.random() < 0.7
        words = [w.upper() if upper else w for w in words]
        rules.append("Use capital letters only." if upper else "Use small letters only.")
        checks.append({"kind": "uppercase" if upper else "lowercase"})
    if "separator" in chosen:
        mark, name = rng.choice(SEPARATORS)
        rules.append(f"Separate the words with {name}.")
        checks.append({"kind": "separator", "value": mark})
    if "end" in chosen:
        end = rng.choice("!?")
        rules.append(f'End with "{end}".')
        checks.append({"kind": "ends_with", "value": end})
    return rules, checks, words, mark, end
