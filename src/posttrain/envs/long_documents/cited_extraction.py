"""A question on numbered sentences: the answer counts only with the sentences that carry it."""

from __future__ import annotations

from dataclasses import dataclass

from posttrain.envs._base import Family
from posttrain.envs._machinery.asking import ask, pick, said
from posttrain.envs._machinery.documents import RELATIONS, boss_chain, draw_facts, draw_people, write
from posttrain.types import Response, Task
from posttrain.verifiers.citations import Citations

RULE = 'End with "Answer: value [number]", citing the sentence{all}, or "Answer: not stated".'
WORDINGS = (
    "{text}\n{question} " + RULE,
    "Read: {text}\nQuestion: {question}\n" + RULE,
    "{question} Use only these sentences: {text}\n" + RULE,
    "Sentences:\n{text}\n\n" + RULE + "\n{question}",
)
UNANSWERABLE = 0.1  # their share; "not stated" always earns no more


@dataclass(frozen=True)
class CitedExtraction(Family):
    """Find a fact among numbered sentences and cite where it stands; one question in ten has no answer in the text.

    Level 0: three sentences, one fact. From level 1 the question goes through bosses ("the boss of the boss of Mia") and every
    sentence on the way must be cited in order; nine links among 60 sentences at level 9. Size: number of sentences.
    """

    @property
    def verifier(self) -> Citations:
        return Citations(ordered=True)

    def generate(self, seed: int, level: int) -> Task:
        rng = self.rng(seed, level)
        people = draw_people(rng, level + 2)
        chain = people[: max(level, 1) + (level > 0)]
        facts = draw_facts(rng, people, 3 + level * (level + 1) // 2)
        target = (chain[-1], rng.choice(list(RELATIONS)))
        others = [f for f in facts if f != target]
        known = rng.random() >= UNANSWERABLE
        facts = {f: facts[f] for f in others}
        if known:
            del facts[others[0]]
            used = {v for (_, r), v in facts.items() if r == target[1]}
            pool = RELATIONS[target[1]][0]
            facts[target] = rng.choice([v for v in pool if v not in used] or list(pool))
        document = write(rng, facts | boss_chain(chain))
        way = [*zip(chain, ["boss"] * (len(chain) - 1), strict=False), target]
        ids = [document.where[step] for step in way if step in document.where]
        who = "the boss of " * (len(chain) - 1) + chain[0]
        steps = [f"The boss of {a} is {document.values[a, 'boss']} [{document.where[a, 'boss']}]." for a in chain[:-1]]
        value = document.values.get(target)
        answer = f"Answer: {value} {''.join(f'[{i}]' for i in ids)}" if known else "Answer: not stated"
        template, wording = pick(rng, WORDINGS)
        return ask(
            self,
            seed,
            level,
            template=template,
            prompt=wording.format(
                text=document.text,
                question=RELATIONS[target[1]][2].format(who=who),
                all="s in the order you use them, as [2][5]" if level else "",
            ),
            answer={"value": value, "ids": ids if known else []},
            oracle="\n".join([*steps, answer]),
            size=len(document.sentences),
            private={
                "other": next((v for (p, r), v in facts.items() if (p, r) != target), "tea"),
                "sentences": len(document.sentences),
            },
        )

    def oracle(self, task: Task) -> Response:
        return said(task)

    def decoys(self, task: Task) -> list[Response]:
        other = task.private["other"]
        if task.answer["value"] is None:
            return [
                Response.of(f"Answer: {other} [1]", "made up"),
                Response.of("Answer: not stated [1]", "nothing, with a citation"),
                Response.of(f"Answer: not stated\nAnswer: {other} [1]", "hedged"),
                Response.of("not stated", "no answer line"),
            ]
        value, ids = task.answer["value"], task.answer["ids"]
        marks = "".join(f"[{i}]" for i in ids)
        wrong = [ids[-1] % task.private["sentences"] + 1]
        everything = "".join(f"[{i}]" for i in range(1, task.private["sentences"] + 1))
        return [
            Response.of(f"Answer: {value} {''.join(f'[{i}]' for i in [*ids[:-1], *wrong])}", "wrong citation"),
            Response.of(f"Answer: {value} {everything}", "cites everything"),
            Response.of(f"Answer: {value}", "no citation"),
            Response.of(f"Answer: {other}{'s' if other == value else ''} {marks}", "another value"),
            Response.of("Answer: not stated", "gives up"),
            Response.of(f"{value} {marks}", "no answer line"),
        ]

    def size(self, task: Task) -> float:
        return float(task.metadata["size"])
