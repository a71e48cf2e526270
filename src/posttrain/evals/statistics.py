"""The statistics of paired evaluations, numpy only.

Families are fixed (we speak about these families), their templates are a sample of possible wordings, tasks are a sample
within a template. So the cluster is (family, template), the strata are families, and an overall figure is the mean of the
families' means. Clustering follows Miller, arXiv 2411.00640; small cells Bowyer et al., arXiv 2503.01747.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_NORMAL = NormalDist()
_EXACT_SIGN_FLIPS = 14  # up to 2**14 sign patterns are enumerated, above that drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean with its uncertainty. ``degenerate``: no spread between clusters, so the interval's width says nothing."""

    mean: float
    low: float
    high: float
    standard_error: float
    num_clusters: int
    degrees_of_freedom: int
    degenerate: bool = False


def t_cdf(t: float, degrees_of_freedom: int) -> float:
    """P(T <= t) of Student's t with a whole number of degrees of freedom >= 1 (finite series, Abramowitz & Stegun 26.7.3-4)."""
    n = degrees_of_freedom
    if n < 1:
        raise ValueError(f"Student's t needs at least 1 degree of freedom, got {n}")
    theta = math.atan(abs(t) / math.sqrt(n))
    sin, cos2 = math.sin(theta), math.cos(theta) ** 2
    term, total = (1.0, 0.0)
    for k in range(n % 2, n - 1, 2):  # cos^k terms with the ratios k/(k+1)
        total += term
        term *= cos2 * (k + 1) / (k + 2)
    inside = sin * total if n % 2 == 0 else (2 / math.pi) * (theta + sin * math.cos(theta) * total)
    return 0.5 + math.copysign(inside / 2, t)


def t_quantile(probability: float, degrees_of_freedom: int) -> float:
    """The inverse of ``t_cdf`` by bisection, to 1e-12 relative. ``t_quantile(0.975, 3)`` is 3.182446."""
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}; a quantile needs one strictly between 0 and 1")
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees_of_freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees_of_freedom) < probability:
        low, high = high, 2 * high
    while high - low > 1e-12 * max(high, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, degrees_of_freedom) < probability else (low, middle)
    return (low + high) / 2


def _codes(labels: Sequence[Hashable]) -> tuple[NDArray[np.int64], int]:
    """Labels as 0, 1, 2 ... by first appearance, and how many there are."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(x, len(seen)) for x in labels], dtype=np.int64), len(seen)


def bootstrap(
    values: Sequence[float] | Floats,
    families: Sequence[Hashable],
    clusters: Sequence[Hashable],
    *,
    seed: int,
    level: float = 0.95,
    draws: int = 4000,
) -> Estimate:
    """Seeded cluster bootstrap of the mean of family means: families are fixed strata, clusters resampled within each.

    Of a family's C clusters C-1 are drawn with replacement (Rao & Wu 1988: drawing C would understate the variance by
    (C-1)/C, a quarter of it at four templates), and the percentiles' distance from the mean is widened by Student's t over
    the normal, with clusters minus families degrees of freedom. A family with one cluster, or whose clusters agree exactly
    while its items do not, resamples its items instead: agreement of four averages is not certainty.
    """
    x = np.asarray(values, dtype=np.float64)
    family_codes, num_families = _codes(families)
    if not len(x) == len(family_codes) == len(clusters):
        raise ValueError(f"{len(x)} values, {len(family_codes)} families, {len(clusters)} clusters; they must be equal in number")
    if not num_families:
        raise ValueError("nothing to resample: no values")
    rng = np.random.default_rng(seed)
    labels = list(clusters)
    replicates = np.zeros(draws)
    mean, num_clusters = 0.0, 0
    for family in range(num_families):
        rows = np.flatnonzero(family_codes == family)
        codes, num = _codes([labels[i] for i in rows])
        if num == 1:
            codes, num = np.arange(len(rows), dtype=np.int64), len(rows)
        num_clusters += num
        sums: Floats = np.bincount(codes, weights=x[rows], minlength=num).astype(np.float64)
        counts: Floats = np.bincount(codes, minlength=num).astype(np.float64)
        if np.ptp(sums / counts) < 1e-12:
            sums, counts, num = x[rows], np.ones(len(rows)), len(rows)
        picked = rng.integers(num, size=(draws, max(num - 1, 1)))
        replicates += sums[picked].sum(1) / counts[picked].sum(1) / num_families
        mean += float(x[rows].mean()) / num_families
    freedom = max(num_clusters - num_families, 1)
    widen = t_quantile((1 + level) / 2, freedom) / _NORMAL.inv_cdf((1 + level) / 2)
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2])
    error = float(replicates.std())
    return Estimate(
        mean=mean,
        low=mean + (float(low) - mean) * widen,
        high=mean + (float(high) - mean) * widen,
        standard_error=error,
        num_clusters=num_clusters,
        degrees_of_freedom=freedom,
        degenerate=error < 1e-12,
    )


def sign_flip(differences: Sequence[float] | Floats, *, seed: int, alternative: str = "two-sided", draws: int = 10_000) -> float:
    """p-value of the sign-flip permutation test that paired differences are symmetric about 0.

    ``alternative``: "two-sided", "less" (the mean dropped) or "greater". Zeros carry no sign and are left out. Exact by
    enumeration up to 14 differences, else ``draws`` seeded patterns with the observed one counted among them.
    """
    x = np.asarray(differences, dtype=np.float64)
    x = x[x != 0]
    if not len(x):
        return 1.0
    if alternative not in ("two-sided", "less", "greater"):
        raise ValueError(f"alternative is {alternative!r}; use 'two-sided', 'less' or 'greater'")
    exact = len(x) <= _EXACT_SIGN_FLIPS
    if exact:
        bits = (np.arange(2 ** len(x))[:, None] >> np.arange(len(x))) & 1
    else:
        bits = np.random.default_rng(seed).integers(2, size=(draws, len(x)))
    sums = (1 - 2 * bits) @ x
    observed, slack = float(x.sum()), 1e-9 * float(np.abs(x).sum())
    if alternative == "two-sided":
        extreme = np.abs(sums) >= abs(observed) - slack
    else:
        extreme = sums <= observed + slack if alternative == "less" else sums >= observed - slack
    return float(extreme.mean()) if exact else float((1 + extreme.sum()) / (1 + draws))


def mcnemar(num_lost: int, num_won: int, *, alternative: str = "two-sided") -> float:
    """Exact McNemar p-value from the discordant pairs: ok -> not ok (lost) and not ok -> ok (won), binomial with p = 1/2.

    ``alternative="less"`` asks whether the second arm is worse. ``mcnemar(1, 9)`` is 0.021484375.
    """
    n = num_lost + num_won
    if alternative == "two-sided":
        tail = sum(math.comb(n, i) for i in range(min(num_lost, num_won) + 1))
        return min(1.0, float(2 * tail / 2**n))
    if alternative != "less":
        raise ValueError(f"alternative is {alternative!r}; use 'two-sided' or 'less'")
    return float(sum(math.comb(n, i) for i in range(num_lost, n + 1)) / 2**n)


def wilson(num_ok: int, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion; (0, 1) for n = 0."""
    if not 0 <= num_ok <= n:
        raise ValueError(f"{num_ok} of {n} passed; it must be between 0 and {n}")
    if n == 0:
        return 0.0, 1.0
    z, p = _NORMAL.inv_cdf((1 + level) / 2), num_ok / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return (0.0 if num_ok == 0 else centre - half), (1.0 if num_ok == n else centre + half)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that at least one of k samples passes, from c passes in n (Chen et al., arXiv 2107.03374)."""
    _check_k(n, c, k)
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Unbiased chance that all of k samples pass, from c passes in n (pass^k, Yao et al., arXiv 2406.12045)."""
    _check_k(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def _check_k(n: int, c: int, k: int) -> None:
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"n = {n} samples, c = {c} passes, k = {k}; need 0 <= c <= n and 1 <= k <= n")


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda j: p_values[j])):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = running
    return adjusted


def paired_power(standard_error: float, drop: float, *, alpha: float = 0.05) -> float:
    """Chance that a one-sided test at ``alpha`` sees a drop of this size, given the paired difference's standard error."""
    if standard_error == 0:
        return 1.0 if drop > 0 else alpha
    return _NORMAL.cdf(drop / standard_error - _NORMAL.inv_cdf(1 - alpha))
