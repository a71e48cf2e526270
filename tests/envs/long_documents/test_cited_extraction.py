"""Extraction with citations: the cited sentences carry the answer, and some questions have none."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from posttrain.envs.long_documents.cited_extraction import CitedExtraction


@pytest.mark.parametrize("level", [0, 1, 4, 9])
def test_the_cited_sentences_lead_to_the_value(level: int) -> None:
    for seed in range(60):
        task = CitedExtraction().generate(seed, level)
        text = task.prompt[0].content
        sentences = {int(i): s for i, s in re.findall(r"\[(\d+)\] ([^\[]*?\.)(?= \[|\s|$)", text)}
        assert len(sentences) == task.metadata["size"]
        value, ids = task.answer["value"], task.answer["ids"]
        if value is None:
            assert ids == []
            continue
        assert len(ids) == (1 if level == 0 else level + 1)
        assert value in sentences[ids[-1]]
        for a, b in pairwise(ids):  # each sentence names somebody of the next
            assert set(re.findall(r"[A-Z]\w+", sentences[a])) & set(re.findall(r"[A-Z]\w+", sentences[b])), (text, ids)


def test_one_question_in_ten_has_no_answer() -> None:
    tasks = [CitedExtraction().generate(seed, 0) for seed in range(1000)]
    assert 70 <= sum(t.answer["value"] is None for t in tasks) <= 135


def test_a_value_stands_once_so_that_one_citation_is_right() -> None:
    for seed in range(200):
        task = CitedExtraction().generate(seed, 0)
        if task.answer["value"]:
            sentences = re.findall(r"\[\d+\] [^\[]*?\.", task.prompt[0].content)
            assert sum(bool(re.search(rf"\b{task.answer['value']}\b", s)) for s in sentences) == 1
