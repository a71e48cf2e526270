"""Mathematical answers by meaning: the pairs that other graders confuse, hostile input, and whose fault a failure is."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from posttrain.contracts.verifiers import attempt
from posttrain.errors import DeadlineExceeded, InfraError
from posttrain.types import Verdict
from posttrain.verifiers import _bounded
from posttrain.verifiers._math_exact import Exact, TooLarge, is_expanded
from posttrain.verifiers._math_lexer import NotMath
from posttrain.verifiers._math_parser import parse
from posttrain.verifiers.math import Math


def judge(gold: object, text: str, **options: object) -> Verdict:
    return asyncio.run(Math(**options).judge(attempt(gold, text)))  # type: ignore[arg-type]


EQUAL = [
    ("1/2", "0.5"),
    ("1/2", r"\frac12"),
    ("3/4", r"\dfrac{3}{4}"),
    ("50%", "1/2"),
    ("1234", "1,234"),
    ("18", r"\$18"),
    ("73", "**73**"),
    ("A", r"\boxed{A}"),
    ("even", r"\text{even}"),
    (r"\text{even}", "Even"),
    ("-3", "−3"),
    (r"2\frac{1}{2}", "5/2"),
    ("1/2004!", "1/2004!"),
    ("2^-99", "1/2^{99}"),
    ("2x+2y", "2(x+y)"),
    ("(x+1)^2", "x^2+2x+1"),
    ("x=3", "3"),
    ("3", "x = 3"),
    ("3*x-1*y+13=0", "y = 3x + 13"),
    ("1,2,3", "(1, 2, 3)"),
    (r"\{1,2,3\}", "3, 1, 2"),
    ("5^(5^(5^5))", "5^(5^(5^5))"),
    ("$4x^2$", "4 x^2"),
]
EQUAL_BY_SYMPY = [
    ("sqrt(1/n)", r"\frac{1}{\sqrt{n}}"),
    (r"\sqrt{8}", r"2\sqrt2"),
    ("1-1/e", r"1-\frac{1}{\mathrm{e}}"),
    ("x in (1,2)", "1<x<2"),
    ("(1,2)", "1<x<2"),
    ("x >= 3", r"[3, \infty)"),
    ("x<1 or x>2", r"(-\infty,1) \cup (2,\infty)"),
    ("x=1 or x=2", r"\{2, 1\}"),
    (r"2 \pm \sqrt{3}", r"\{2-\sqrt{3}, 2+\sqrt{3}\}"),
    ("sin(x)^2 + cos(x)^2", "1"),
    (r"\log_2 8", "3"),
    ("e^(x+y)", "e^x e^y"),
    (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", r"\begin{pmatrix}1&2\\3&2^2\end{pmatrix}"),
    ("|x|", r"\sqrt{x^2}"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    (r"\binom{5}{2} \pi", r"10\pi"),
    ("f(x)=0", "0 = f(x)"),
]
DIFFERENT = [
    ("1/2004!", "1/2006!"),
    ("2^-99", "2^-98"),
    ("1,2,3", "3,2,1"),
    ("1/3", "x = 1/3 or x = 2/3"),
    ("1/3", "0.333"),
    ("0.33", "1/3"),
    ("2", "3"),
    ("x+1", "x-1"),
    ("even", "odd"),
    ("3", "0.3e2"),
    ("7", "1/0"),
    ("1", "5^(5^(5^(5^5)))"),
    ("18 dollars", "18 cents"),
]
DIFFERENT_BY_SYMPY = [
    (r"1-1/\mathrm{e}", r"1+1/\mathrm{e}"),
    ("3*x-1*y+13=0", "3x+4y+14=0"),
    ("|x|", "x"),
    (r"\sqrt{x^2}", "x"),
    ("x in (1,2)", "1<=x<2"),
    ("x in (1,2)", "1<x<3"),
    (r"\{1,2\}", r"\{1,2,3\}"),
    ("f(x)=0", "g(x)=0"),
    ("f(x)=0", "x=0"),
    ("pi", "3.14159"),
    ("e^(pi*sqrt(163))", "640320^3+744"),  # alike to 30 digits
    (r"\sqrt{2}", r"\sqrt{3}"),
    ("x^2", "sin(x)"),
]
MALFORMED = [
    "1/3 or 2/3",
    "either 3 or 4",
    "3 apples and 4 pears",
    "forall x>0, f(x)=0",
    "1 2",
    "(",
    "\\frac{1}{",
    "()" * 9,
    "((" * 99,
]


@pytest.mark.parametrize(("gold", "answer"), EQUAL + EQUAL_BY_SYMPY)
def test_equal(gold: str, answer: str) -> None:
    verdict = judge(gold, f"Some steps.\nAnswer: {answer}")
    assert (verdict.status, verdict.reward) == ("ok", 1.0), verdict


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT + DIFFERENT_BY_SYMPY)
def test_different(gold: str, answer: str) -> None:
    verdict = judge(gold, f"Answer: {answer}")
    assert (verdict.status, verdict.reward) == ("wrong", 0.0), verdict


@pytest.mark.parametrize("answer", MALFORMED)
def test_malformed(answer: str) -> None:
    assert judge("1/3", f"Answer: {answer}").status == "malformed"


def test_the_last_answer_decides() -> None:
    assert judge("4", "Answer: 3\nAnswer: 4").status == "ok"
    assert judge("3", "Answer: 3\nAnswer: 4").status == "wrong"
    assert judge("3", r"Answer: 4, no: \boxed{3}").status == "ok"


@pytest.mark.parametrize("gold", [None, "", "\\frac{", "3 or 4", "5^^", "9^9^9^9^9 + x"])
def test_a_gold_that_cannot_be_read_is_unverifiable(gold: object) -> None:
    assert judge(gold, "Answer: 1").status == "unverifiable"


def test_marked_false_reads_the_last_line() -> None:
    assert judge("18", "So far so good.\nThe total is \\$18.", marked=False).status == "ok"
    assert judge("18", "The total is \\$18.").status == "malformed"


def test_expanded_form_is_asked_for() -> None:
    assert judge("5x + 5", "Answer: 5 + 5x", form="expanded").status == "ok"
    assert judge("5x + 5", "Answer: 3x + 5 + 2x", form="expanded").status == "malformed"
    assert judge("5x + 5", "Answer: 5(x + 1)", form="expanded").status == "malformed"
    assert judge("5x + 5", "Answer: 5x + 6", form="expanded").status == "wrong"


def test_a_tower_of_powers_ends_at_once_even_in_a_thread() -> None:
    found: list[Verdict] = []
    start = time.monotonic()
    thread = threading.Thread(target=lambda: found.append(judge("4", "Answer: 5^(5^(5^(5^5)))")))
    thread.start()
    thread.join(10)
    assert found[0].status == "wrong"
    assert time.monotonic() - start < 3


def test_an_answer_that_stalls_is_wrong_and_a_gold_that_stalls_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    stalls = {"answer": {parse("x^2 + sin(x)")}, "both": {parse("x^2 + sin(x)"), parse("cos(x)")}}

    class Pool:
        def __init__(self, bad: set[object]) -> None:
            self.bad = bad

        async def call(self, target: str, gold: object, got: object, *, deadline: float) -> dict[str, object]:
            if got in self.bad:
                raise DeadlineExceeded(target, deadline)
            return {"equal": True, "fault": ""}

    monkeypatch.setattr("posttrain.processes.shared", lambda: Pool(stalls["answer"]))
    assert judge("cos(x)", "Answer: x^2 + sin(x)").status == "wrong"
    monkeypatch.setattr("posttrain.processes.shared", lambda: Pool(stalls["both"]))
    with pytest.raises(InfraError):
        judge("cos(x)", "Answer: x^2 + sin(x)")
    assert _bounded.Stalled is not None


def test_the_parser_reads_what_it_should() -> None:
    assert parse("2x") == ("mul", ("num", "2"), ("sym", "x"))
    assert parse("1/2x") == ("mul", ("div", ("num", "1"), ("num", "2")), ("sym", "x"))
    assert parse("-x^2") == ("neg", ("pow", ("sym", "x"), ("num", "2")))
    assert parse("sin 2x") == ("call", "sin", (("mul", ("num", "2"), ("sym", "x")),))
    for bad in ("", "+", "2 +", "__import__('os')", "x" * 3_000, "1+" * 700 + "1", "-" * 300 + "1", "{" * 99):
        with pytest.raises(NotMath):
            parse(bad)


def test_exact_arithmetic_is_bounded() -> None:
    assert Exact(parse("(1/2 + 1/3) * 6")).constant() == 5
    assert Exact(parse("(x+1)(x-1)")).polynomial() == {(("x", 2),): 1, (): -1}
    assert Exact(parse("sin(x)")).polynomial() is None
    for huge in ("9^(9^9)", "99999!", "2^99999999", "(x+y+z)^99"):
        with pytest.raises(TooLarge):
            Exact(parse(huge)).polynomial()
    assert is_expanded(parse("3/2 x - y + 4"))
    assert not is_expanded(parse("2*3x"))


HOSTILE = {
    "a tower over a symbol": "(((10^9999 x)^24)^24)^24",
    "many factorials": "+".join(["8000!"] * 190) + "+x",
    "many unlike factorials": "+".join(f"{8000 - i}!" for i in range(120)) + "+x",
    "fractions without a common divisor": "+".join(f"1/{7990 + i}!" for i in range(100)) + "+x",
    "quotients of factorials": "+".join(f"{300 + i}!/{301 + i}!" for i in range(80)) + "+x",
    "huge coefficients": "+".join(f"2^{9000 + i}x^{i % 24}" for i in range(70)),
    "powers of sums": "(x/3+1/7)^24(x/11-1/13)^24(x/17+2/19)^24(x-2)^24",
    "many powers of sums": "+".join(f"(x/{n}+{n + 1}/{n + 2})^24" for n in range(3, 30)),
    "sums of many letters": "(" + "+".join(a + b for a in "abcdf" for b in "ghjkl") + ")^24",
    "many names in one term": "(" + " ".join(f"x_{i}" for i in range(80)) + "+1)^24",
    "a long product": "x " * 590,
    "factorials of factorials": "x" + "!" * 590,
    "percent of percent": "7" + "%" * 590 + "x",
    "a long fraction": "1/" * 299 + "x",
    "nested fractions": r"\frac{1}{" * 25 + "x" + "}" * 25,
    "nested sums": "(" * 25 + "3000!" + "+3000!)" * 25 + "x",
    "long numbers": "*".join("9" * 60 for _ in range(30)) + "x",
    "zero to a huge power": "0^(2^90000) x + 1",
    "zero to a huge negative power": "0^(-(2^9000)) x",
    "a set of large numbers": r"\{" + ",".join("2000!+x" for _ in range(60)) + r"\}",
}
BLOCKED = 0.25  # seconds of this process's own time that one judgement may hold up the event loop


@pytest.fixture
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the killable worker does holds nothing up."""

    async def judged(*_: object, **__: object) -> dict[str, object]:
        return {"equal": False, "fault": ""}

    monkeypatch.setattr("posttrain.verifiers.math.judge_in_worker", judged)


def blocked(gold: str, text: str, **options: object) -> float:
    start = time.process_time()
    judge(gold, text, **options)
    return time.process_time() - start


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_answer_holds_up_the_event_loop(text: str, no_worker: None) -> None:
    assert len(text) < 2_000, "a longer one never reaches the arithmetic"
    for gold in ("x + 1", "4173", r"\{1, 2\}"):
        assert blocked(gold, f"Answer: {text}") < BLOCKED
    assert blocked("x + 1", f"Answer: {text}", form="expanded") < BLOCKED
    assert blocked(text, f"Answer: {text} + 1") < BLOCKED, "nor does a gold"


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    some = st.lists(parts, min_size=2, max_size=4)
    times = st.integers(1, 40)
    return st.one_of(
        st.builds(lambda p, op: f"({op.join(p)})", some, st.sampled_from(["+", "-", "*", "/", " "])),
        st.builds(lambda p, n: f"({p})^{n}", parts, st.sampled_from(["2", "24", "-3", "9999", "(1/2)", "x", "(2^9)"])),
        st.builds(lambda p, mark: f"({p}){mark}", parts, st.sampled_from(["!", "%", "!!"])),
        st.builds(lambda p, q: rf"\frac{{{p}}}{{{q}}}", parts, parts),
        st.builds(lambda p, op, n: f"({op.join([p] * n)})", parts, st.sampled_from(["+", "*", "-", "/"]), times),
        st.builds(lambda p, n: "(" * n + p + "+1)" * n, parts, times),
        st.builds(lambda p, n: "(" * n + p + ")^2" * n, parts, times),
    )


ATOMS = st.sampled_from(
    ["x", "y", "z_1", "pi", "0", "1", "7", "3000!", "8000!", "10^9999", "2^90000", "0.1", "1/3", "9" * 90, "ab"]
)
TREES = st.recursive(ATOMS, _joined, max_leaves=12).filter(lambda text: len(text) < 1_900)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=TREES, gold=st.sampled_from(["x+1", "4173", "(x+y)^3"]), form=st.sampled_from(["any", "expanded"]))
def test_no_tree_holds_up_the_event_loop(no_worker: None, text: str, gold: str, form: str) -> None:
    assert blocked(gold, f"Answer: {text}", form=form) < BLOCKED
