#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot_reports_test.py TOP: charts of the committed reports are made, and bad input is one line."""
import argparse
import pathlib
import subprocess
import sys
import tempfile

# The libraries are the distribution's; another python3 that is found first may not have them.
PYTHONS = [sys.executable, "/usr/bin/python3"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("top", type=pathlib.Path)
    top = parser.parse_args().top.resolve()
    python = next((p for p in PYTHONS if subprocess.run([p, "-c", "import matplotlib, pandas"], capture_output=True).returncode == 0), None)
    if python is None:
        print("left out: python3-matplotlib and python3-pandas are not installed")
        return 77
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def plot(*words):
            return subprocess.run([python, str(top / "scripts/plot_reports.py"), *map(str, words)], capture_output=True, text=True)

        for baseline in sorted((top / "reports/baselines").iterdir()):
            done = plot(baseline, "--out", folder / "charts")
            if done.returncode != 0:
                wrong.append(f"{baseline}: {done.stderr}")
                continue
            page = (folder / "charts/charts.html").read_text()
            pictures = sorted(p.name for p in (folder / "charts").glob("*.png"))
            if len(pictures) < 3 or page.count("data:image/png;base64,") != len(pictures):
                wrong.append(f"{baseline}: pictures {pictures}, {page.count('data:image/png')} of them in the page")
            if "http" in page.replace("http-equiv", ""):
                wrong.append("the page does not stand alone")
        (folder / "empty").mkdir()
        (folder / "torn").mkdir()
        (folder / "torn/throughput.csv").write_text("")
        committed = (top / "reports/baselines/sm_90/throughput.csv").read_text().splitlines()
        column = committed[0].split(",").index("time_us_median")
        for name, median in [("negative", "-5"), ("nan", "nan")]:  # cells with commas stand behind the times
            (folder / name).mkdir()
            cells = committed[1].split(",")
            cells[column] = median
            (folder / name / "throughput.csv").write_text(committed[0] + "\n" + ",".join(cells) + "\n")
        (folder / "other").mkdir()
        (folder / "other/throughput.csv").write_text("a,b\n1,2\n")
        for words, why in [([folder / "negative"], "throughput.csv:2: naive passed in a time that cannot be"), ([folder / "nan"], "throughput.csv:2:"),
                           ([folder / "other"], "is no report"), ([folder / "empty"], "holds neither"), ([folder / "nowhere"], "holds neither"), ([folder / "torn"], "throughput.csv"),
                           ([top / "reports/baselines/sm_90", "--out", "/proc/nowhere"], "/proc/nowhere")]:
            done = plot(*words)
            if done.returncode != 3 or why not in done.stderr or done.stderr.count("\n") != 1:
                wrong.append(f"{words}: exit status {done.returncode}, {done.stderr!r}, wanted {why!r} in one line")
    print("\n".join(wrong) or "charts: nothing wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
