"""What an account has used lately, as one number that fades (S1): MiB-seconds, halved every half-life.

Whole numbers throughout, so that every machine and every replay gets the same order.
"""

from math import isqrt

_ONE_BITS = 64
_DIGITS = 40
# 2 ** -(2 ** -k) for k = 0, 1, 2 ... in units of 2 ** -64: each is the square root of the one before.
_FADE = [1 << (_ONE_BITS - 1)]
for _ in range(_DIGITS):
    _FADE.append(isqrt(_FADE[-1] << _ONE_BITS))


def decayed(usage: int, elapsed_s: int, half_life_s: int) -> int:
    """`usage` after `elapsed_s` in which nothing was used: usage × 2^(-elapsed / half-life), rounded down.
    A half-life of 0 forgets at once."""
    if elapsed_s <= 0 or usage <= 0:
        return max(0, usage)
    if half_life_s <= 0:
        return 0
    whole, rest = divmod(elapsed_s, half_life_s)
    usage >>= whole
    for factor in _FADE[1:]:  # the binary digits of rest / half-life, from 1/2 down
        rest *= 2
        if rest >= half_life_s:
            rest -= half_life_s
            usage = usage * factor >> _ONE_BITS
    return usage


def accrued(usage: int, elapsed_s: int, half_life_s: int, held_mib: int) -> int:
    """`usage` after `elapsed_s` in which `held_mib` were charged, both classes and all cards together."""
    return decayed(usage, elapsed_s, half_life_s) + held_mib * max(0, elapsed_s)


def share(usage: int, weight: int) -> int:
    """What S1 compares (`Account.usage`): usage over the account's weight, down to a whole number."""
    return usage // max(1, weight)
