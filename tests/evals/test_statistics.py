"""Each statistic against a value derived another way: enumeration, integration, a hand calculation, simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from posttrain.evals import statistics as st


@pytest.mark.parametrize("df", [1, 2, 3, 7, 24, 25, 200])
def test_t_cdf_is_the_integral_of_the_density(df: int) -> None:
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)
    x = np.linspace(0, 2.5, 20_001)
    density = scale * (1 + x**2 / df) ** (-(df + 1) / 2)
    area = float(((density[1:] + density[:-1]) / 2 * np.diff(x)).sum())
    assert st.t_cdf(2.5, df) == pytest.approx(0.5 + area, abs=1e-8)
    assert st.t_cdf(-2.5, df) == pytest.approx(0.5 - area, abs=1e-8)


@pytest.mark.parametrize(("df", "value"), [(1, 12.706205), (2, 4.302653), (3, 3.182446), (10, 2.228139), (30, 2.042272)])
def test_t_quantile_gives_the_printed_tables(df: int, value: float) -> None:
    assert st.t_quantile(0.975, df) == pytest.approx(value, abs=1e-6)
    assert st.t_quantile(0.025, df) == pytest.approx(-value, abs=1e-6)


def test_bootstrap_has_the_variance_of_all_possible_draws() -> None:
    # Two families of three equal clusters: enumerate every draw of two clusters from three.
    data = {"a": [0.0, 0.5, 1.0], "b": [0.2, 0.2, -0.7]}
    values = [v for c in data.values() for v in c for _ in range(2)]
    families = [f for f in data for _ in range(6)]
    clusters = [(f, i) for f in data for i in range(3) for _ in range(2)]
    means = {f: [sum(p) / 2 for p in itertools.product(c, repeat=2)] for f, c in data.items()}
    every = [(x + y) / 2 for x in means["a"] for y in means["b"]]
    got = st.bootstrap(values, families, clusters, seed=0, draws=60_000)
    assert got.mean == pytest.approx(np.mean(every))
    assert got.standard_error == pytest.approx(np.std(every), rel=0.01)
    unbiased = math.sqrt(sum(np.var(c, ddof=1) / 3 for c in data.values())) / 2
    assert got.standard_error == pytest.approx(unbiased, rel=0.01)
    assert got.degrees_of_freedom == 4 and got.num_clusters == 6


def test_bootstrap_holds_families_fixed_and_weighs_them_alike() -> None:
    # All spread lies between families, none between the templates of one: nothing to resample.
    values = [1.0] * 40 + [0.0] * 4
    families = ["big"] * 40 + ["small"] * 4
    got = st.bootstrap(values, families, [(f, i % 4) for i, f in enumerate(families)], seed=1)
    assert got.mean == 0.5 and got.low == got.high == 0.5 and got.degenerate


def test_templates_that_agree_by_chance_do_not_make_certainty() -> None:
    values = [1.0, 0.0] * 8  # every template has a mean of 0.5
    got = st.bootstrap(values, ["f"] * 16, [i // 4 for i in range(16)], seed=0, draws=20_000)
    assert got.standard_error == pytest.approx(np.std(values, ddof=1) / 4, rel=0.03)
    assert got.num_clusters == 4 and got.degrees_of_freedom == 3 and not got.degenerate


def test_bootstrap_depends_on_its_seed_only() -> None:
    rng = np.random.default_rng(0)
    values, templates = rng.normal(size=60), [i % 5 for i in range(60)]
    args = (values, ["f"] * 60, templates)
    assert st.bootstrap(*args, seed=3) == st.bootstrap(*args, seed=3)
    assert st.bootstrap(*args, seed=3) != st.bootstrap(*args, seed=4)


def test_bootstrap_resamples_items_where_there_is_one_template() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=50)
    got = st.bootstrap(values, ["f"] * 50, ["only"] * 50, seed=0, draws=20_000)
    assert got.num_clusters == 50
    assert got.standard_error == pytest.approx(np.std(values, ddof=1) / math.sqrt(50), rel=0.03)


def test_sign_flip_equals_enumeration() -> None:
    d = [0.3, -0.1, 0.5, 0.2, 0.0, 0.4, -0.2]
    sums = [sum(s * x for s, x in zip(signs, d, strict=True)) for signs in itertools.product((1, -1), repeat=7)]
    observed = sum(d)
    two = sum(abs(s) >= abs(observed) - 1e-12 for s in sums) / len(sums)
    less = sum(s <= observed + 1e-12 for s in sums) / len(sums)
    assert st.sign_flip(d, seed=0) == pytest.approx(two)
    assert st.sign_flip(d, seed=0, alternative="less") == pytest.approx(less)
    assert st.sign_flip([0.0, 0.0], seed=0) == 1.0


def test_drawn_sign_flips_agree_with_the_binomial() -> None:
    # Twenty differences of one size: the sum depends on the number of minus signs only.
    d = [1.0] * 14 + [-1.0] * 6
    exact = 2 * sum(math.comb(20, i) for i in range(7)) / 2**20
    assert st.sign_flip(d, seed=2, draws=40_000) == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(("lost", "won"), [(0, 0), (1, 9), (9, 1), (3, 3), (0, 5)])
def test_mcnemar_equals_enumeration_of_coin_flips(lost: int, won: int) -> None:
    n = lost + won
    counts = [sum(c) for c in itertools.product((0, 1), repeat=n)]
    two = sum(abs(c - n / 2) >= abs(lost - n / 2) for c in counts) / len(counts)
    less = sum(c >= lost for c in counts) / len(counts)
    assert st.mcnemar(lost, won) == pytest.approx(two)
    assert st.mcnemar(lost, won, alternative="less") == pytest.approx(less)


@pytest.mark.parametrize(("ok", "n"), [(0, 10), (8, 10), (10, 10), (41, 300)])
def test_wilson_bounds_are_where_the_score_test_just_rejects(ok: int, n: int) -> None:
    z = 1.959963984540054
    for bound in st.wilson(ok, n):
        if 0 < bound < 1:
            assert abs(ok / n - bound) == pytest.approx(z * math.sqrt(bound * (1 - bound) / n), abs=1e-9)
    assert st.wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 0, 2), (6, 6, 4), (7, 3, 5)])
def test_pass_at_k_counts_subsets(n: int, c: int, k: int) -> None:
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert st.pass_at_k(n, c, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))
    assert st.pass_hat_k(n, c, k) == pytest.approx(sum(all(s) for s in subsets) / len(subsets))
    with pytest.raises(ValueError, match="k = 9"):
        st.pass_at_k(n, c, 9)


def test_holm_by_hand() -> None:
    assert st.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert st.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert st.holm([]) == []


@pytest.mark.parametrize("num_families", [1, 2, 8])
def test_intervals_keep_their_promise_under_the_null(num_families: int) -> None:
    """1,000 null experiments whose change differs by template but is 0 on average: at most 6.5 % exclude 0."""
    rng = np.random.default_rng(17)
    families = np.repeat(np.arange(num_families), 32).tolist()
    clusters = [(f, i // 8 % 4) for i, f in enumerate(families)]
    index = np.arange(num_families * 32) // 8
    alarms = 0
    for trial in range(1000):
        shift = rng.normal(scale=0.1, size=num_families * 4)[index]
        base = rng.uniform(0.2, 0.8, size=num_families)[np.array(families)]
        before = rng.random(len(index)) < base
        after = rng.random(len(index)) < base + shift
        got = st.bootstrap(after.astype(float) - before, families, clusters, seed=trial, draws=600)
        alarms += not got.low <= 0 <= got.high
    assert alarms <= 65


def test_ignoring_the_clusters_would_break_the_promise() -> None:
    """The same experiment with tasks taken for independent alarms too often: the clustering is needed and the test can fail."""
    rng = np.random.default_rng(17)
    clusters = [i // 8 for i in range(128)]
    alarms = 0
    for _ in range(300):
        shift = rng.normal(scale=0.2, size=16)[clusters]
        d = (rng.random(128) < 0.5 + shift).astype(float) - (rng.random(128) < 0.5)
        alarms += abs(d.mean()) > st.t_quantile(0.975, 127) * d.std(ddof=1) / math.sqrt(128)
    assert alarms > 0.065 * 300
