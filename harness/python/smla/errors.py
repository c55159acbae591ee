# SPDX-License-Identifier: Apache-2.0
import difflib


class SmlaError(Exception):
    """One line: what was wrong, and what to do."""


def unknown(what, word, known):
    near = difflib.get_close_matches(word, known, 1)
    return SmlaError(f"{what}: unknown '{word}'; " + (f"did you mean '{near[0]}'?" if near else f"known: {' '.join(known)}"))
