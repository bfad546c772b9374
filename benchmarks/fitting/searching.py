"""The largest number for which a trial goes well, with few trials where it is near a guess."""

from __future__ import annotations

from collections.abc import Callable

# The first step away from the guess is this part of it.
NEAR = 32


def largest_that(fits: Callable[[int], bool], most: int, guess: int) -> int:
    """The largest of 1 to `most` for which `fits`, 0 for none; what fits does so with every smaller number too."""
    works, fails = 0, most + 1
    tried, step = min(max(guess, 1), most), max(1, guess // NEAR)
    while works < tried < fails:
        if fits(tried):
            works = tried
        else:
            fails = tried
        # Away from the guess in growing steps, until it is between two tried numbers.
        if works and fails <= most:
            break
        tried = works + step if works else fails - step
        step *= 2
    while fails - works > 1:
        middle = (works + fails) // 2
        if fits(middle):
            works = middle
        else:
            fails = middle
    return works
