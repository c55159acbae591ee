# SPDX-License-Identifier: Apache-2.0
"""One pytest test a case, named by its line:

    import smla.testing
    from my_kernels import mine
    test_mine = smla.testing.cases(mine, suite="quick", filter="s_kv=500")
"""
import atexit
import tempfile

from .errors import SmlaError
from .runs import Session, flags_of, verb

_CHOOSING = ("suite", "cases", "case", "filter", "skip", "set", "shard")


def cases(function, **flags):
    """A parametrised test. Flags are those of smla.check; reports are kept only where out= names a folder, which is then this test's own. A case that the
    kernel declines is skipped with its reason; what is red fails with the line that reruns it."""
    import pytest

    listed = verb("list", "cases", *flags_of({key: value for key, value in flags.items() if key in _CHOOSING}), quiet=True)
    lines = [line.split("  ", 1)[1] for line in listed.text.splitlines()]
    sessions = []

    @pytest.mark.parametrize("case", lines, ids=lines)
    def test(case):
        if not sessions:  # on the first test that runs, not while others are collected
            folder = tempfile.TemporaryDirectory(prefix="smla.")
            atexit.register(folder.cleanup)
            sessions.append(Session(function, **{"out": folder.name, **flags}))
            atexit.register(sessions[0].close)
        answers = sessions[0].check(case)
        wrong = [f"{a['kernel']} {a['status']}: {a['detail']}\nrerun: {a['repro']}" for a in answers if a["red"]]
        if wrong:
            pytest.fail("\n".join(wrong), pytrace=False)
        if answers and all(a["status"] in ("unsupported", "skipped") for a in answers):
            pytest.skip(answers[0]["detail"])

    return test
