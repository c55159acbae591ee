#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Charts of reports, as PNG files and one HTML page that stands alone.

  scripts/plot_reports.py REPORT... [--out DIR]

REPORT is a folder that holds throughput.csv and accuracy.csv (either may be missing): reports/out/<arch>, reports/baselines/<arch>. Several are drawn
together if they are of one device. Needs matplotlib and pandas (Debian: python3-matplotlib python3-pandas).

  roofline.png   rate over arithmetic intensity, under the roofs that were measured in that run
  time_*.png     time over the batch, one picture a model shape: each kernel with its quartiles, the gather floor and the roof
  budget.png     how much of its error budget each kernel uses, by index pattern
"""
import argparse
import base64
import html
import pathlib
import sys

try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # after the backend is chosen
    import pandas as pd
    from matplotlib.ticker import FuncFormatter
    MISSING = None
except ImportError as error:
    MISSING = error

# The same kernel has the same colour and marker in every picture.
STYLE = {
    "sparse_mma": ("#0072b2", "o"),
    "sparse_wgmma": ("#d55e00", "s"),
    "virtual_block_table": ("#009e73", "^"),
    "naive": ("#999999", "x"),
    "dense_paged": ("#cc79a7", "D"),
    "dense_wgmma": ("#e69f00", "P"),
    "cpu_split": ("#0072b2", "o"),
    "cpu_naive": ("#999999", "x"),
}
SPARE = ["#56b4e9", "#f0e442", "#882255", "#44aa99", "#332288"]


def refuse(why):
    """A mistake or something lacking: exit status 3, as everywhere in scripts/."""
    print(f"plot_reports: {why}", file=sys.stderr)
    sys.exit(3)


def style_of(kernel):
    if kernel not in STYLE:
        STYLE[kernel] = (SPARE[len(STYLE) % len(SPARE)], "v")
    return STYLE[kernel]


def times_must_be(frame, path):
    q1, median, q3 = (pd.to_numeric(frame[f"time_us_{name}"], errors="coerce") for name in ("q1", "median", "q3"))
    wrong = frame.index[(frame.status == "pass") & (~(median > 0) | (q1 > median) | (q3 < median))]
    if len(wrong):
        row = frame.loc[wrong[0]]
        refuse(f"{path}:{wrong[0] + 2}: {row.kernel} passed in a time that cannot be: quartiles {row.time_us_q1}, {row.time_us_median}, {row.time_us_q3} µs")


def read(folders, name):
    frames = []
    for folder in folders:
        path = folder / name
        if path.exists():
            try:
                frame = pd.read_csv(path, low_memory=False)
            except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
                refuse(f"{path}: {error}")
            if "schema_version" not in frame:
                refuse(f"{path}: is no report: no column schema_version")
            if "time_us_median" in frame:
                times_must_be(frame, path)
            frames.append(frame)
    return pd.concat(frames, ignore_index=True) if frames else None


def last_rows(rows, keys):
    """Of rows measured again, the last."""
    return rows.drop_duplicates(keys, keep="last")


def plain(value, _=None):
    return f"{value:g}"


def save(figure, folder, name):
    figure.savefig(folder / name, dpi=save.dpi, bbox_inches="tight")
    plt.close(figure)
    return name


save.dpi = 110


def roofline(rows, folder):
    """One panel a way of timing; points are cases, lines what was measured at best in the same run."""
    rows = rows.dropna(subset=["roof_us", "tflops"])
    if rows.empty:
        return []
    figure, axes = plt.subplots(figsize=(9, 6))
    intensity = rows.flops / rows.bytes_unique
    # What the roofs were: the compute roof from a row that it bounds, the memory roof likewise.
    compute, memory = rows[rows.roof_bound == "compute"], rows[rows.roof_bound == "memory"]
    peak = (compute.flops / compute.roof_us / 1e6).max() if not compute.empty else None
    read_gbps = (memory.bytes_unique / memory.roof_us / 1e3).max() if not memory.empty else None
    span = pd.Series([intensity.min() / 2, intensity.max() * 2])
    if read_gbps:
        end = peak * 1e3 / read_gbps if peak else span[1]
        axes.plot([span[0], end], [span[0] * read_gbps / 1e3, end * read_gbps / 1e3], "k-", lw=1)
        axes.annotate(f"read {read_gbps:,.0f} GB/s", (span[0] * 1.1, span[0] * 1.1 * read_gbps / 1e3), rotation=36, va="bottom", fontsize=9)
    if peak:
        axes.plot([peak * 1e3 / read_gbps if read_gbps else span[0], span[1]], [peak, peak], "k-", lw=1)
        axes.annotate(f"products {peak:,.0f} TFLOP/s", (span[1], peak), ha="right", va="bottom", fontsize=9)
    for kernel, of_kernel in rows.groupby("kernel"):
        colour, marker = style_of(kernel)
        filled = of_kernel.pass_kind == "decode"
        at = intensity[of_kernel.index]
        axes.scatter(at[filled], of_kernel.tflops[filled], c=colour, marker=marker, s=26, label=kernel, alpha=0.8, linewidths=1)
        face = {} if marker == "x" else {"facecolors": "none", "edgecolors": colour}
        axes.scatter(at[~filled], of_kernel.tflops[~filled], marker=marker, s=26, linewidths=1, **(face or {"c": colour}))
    axes.set(xscale="log", yscale="log", xlabel="FLOP a byte that must be read (distinct rows, q, out, lists)", ylabel="TFLOP/s (valid entries)")
    axes.set_title(f"{rows.device_name.iloc[0]}: {rows.timing.iloc[0]}, cold. Filled: decode, open: prefill")
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize=8, loc="lower right")
    return [save(figure, folder, "roofline.png")]


def time_over_batch(rows, folder):
    """One picture a KV format, one panel a number of heads; decode shapes with at least two batches."""
    names = []
    decode = rows[(rows.pass_kind == "decode") & (rows.s_q == 1)]
    for (kv_format, pattern, s_kv, topk), group in decode.groupby(["kv_format", "pattern", "s_kv", "topk"]):
        heads = [h for h, of_heads in group.groupby("h_q") if of_heads.b.nunique() > 1]
        if not heads:
            continue
        figure, panels = plt.subplots(1, len(heads), figsize=(3.6 * len(heads) + 1, 4.4), sharey=True, squeeze=False)
        for axes, h_q in zip(panels[0], heads):
            panel = group[group.h_q == h_q]
            for i, (kernel, of_kernel) in enumerate(panel.groupby("kernel")):
                colour, marker = style_of(kernel)
                of_kernel = of_kernel.sort_values("b").drop_duplicates("b")  # models of the same shape: one of them
                beside = of_kernel.b * (1 + 0.05 * (i - 1))  # so that equal times do not hide one another
                spread = [of_kernel.time_us_median - of_kernel.time_us_q1, of_kernel.time_us_q3 - of_kernel.time_us_median]
                axes.errorbar(beside, of_kernel.time_us_median, yerr=spread, color=colour, marker=marker, ms=5, lw=1.2, capsize=3, label=kernel)
            of_case = panel.sort_values("b").drop_duplicates("b")
            for column, line, colour, label in [("gather_floor_us", "--", "k", "only the gather"), ("roof_us", ":", "k", "roof"),
                                                ("dense_time_us_median", "-.", "#cc79a7", "dense, whole context")]:
                known = of_case.dropna(subset=[column])
                if not known.empty:
                    axes.plot(known.b, known[column], ls=line, color=colour, lw=1, label=label)
            axes.set(xscale="log", yscale="log", xlabel="requests (b)", title=f"{h_q} heads")
            axes.set_xticks(sorted(panel.b.unique()))
            axes.minorticks_off()
            axes.xaxis.set_major_formatter(FuncFormatter(plain))
            axes.yaxis.set_major_formatter(FuncFormatter(plain))
            axes.grid(True, which="both", alpha=0.25)
        panels[0][0].set_ylabel("µs a call: median, quartiles")
        handles, labels = panels[0][-1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="center left", bbox_to_anchor=(0.91, 0.5), fontsize=8)
        figure.suptitle(f"{group.device_name.iloc[0]}: decode, {kv_format}, topk {topk} of {s_kv}, {pattern}, {group.timing.iloc[0]} {group.cache.iloc[0]}", y=1.0)
        names.append(save(figure, folder, f"time_{kv_format}_{pattern}_{topk}_of_{s_kv}.png"))
    return names


def budget(rows, folder):
    """Worst case by kernel and pattern: the largest element, in sigma, of which 6 is the limit."""
    # What has an exact answer is judged by a rule of its own; inf, an element that is not finite, has no place on an axis.
    rows = rows[(rows.tensor == "out") & (rows.z_max < float("inf")) & (rows.oracle != "exact")]
    if rows.empty:
        return []
    worst = rows.pivot_table(index="pattern", columns="kernel", values="z_max", aggfunc="max")
    worst = worst.loc[worst.max(axis=1).sort_values().index]
    figure, axes = plt.subplots(figsize=(8, 0.3 * len(worst) + 1.6))
    for kernel in worst.columns:
        colour, marker = style_of(kernel)
        axes.plot(worst[kernel], range(len(worst)), marker, color=colour, ms=5, label=kernel, ls="none", alpha=0.85)
    axes.axvline(6, color="red", lw=1)
    axes.annotate("limit ", (6, len(worst) / 2), ha="right", va="center", rotation=90, fontsize=8, color="red")
    axes.set_yticks(range(len(worst)))
    axes.set_yticklabels(worst.index, fontsize=8)
    axes.set(xlabel="largest |error| of an element, in units of its own sigma", xlim=(0, 6.3))
    axes.set_title(f"{rows.device_name.iloc[0]}: use of the error budget, by pattern ({len(rows)} judged pairs)", fontsize=10)
    axes.grid(True, axis="x", alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return [save(figure, folder, "budget.png")]


def page(folder, title, facts, names):
    """One file: the pictures are in it."""
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title>",
             "<style>body{font:15px/1.4 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}img{max-width:100%}td{padding:0 1em 0 0}</style>",
             f"<h1>{html.escape(title)}</h1><table>"]
    parts += [f"<tr><td>{html.escape(key)}<td>{html.escape(str(value))}" for key, value in facts]
    parts.append("</table>")
    for name in names:
        data = base64.b64encode((folder / name).read_bytes()).decode()
        parts.append(f'<h2>{html.escape(name.removesuffix(".png"))}</h2><img alt="{html.escape(name)}" src="data:image/png;base64,{data}">')
    (folder / "charts.html").write_text("\n".join(parts) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=pathlib.Path, metavar="REPORT")
    parser.add_argument("--out", type=pathlib.Path, help="where the charts go (default: REPORT/charts of the first)")
    parser.add_argument("--timing", default="event", help="which rows: event, graph, wall (default: event, else whatever is there)")
    parser.add_argument("--dpi", type=int, default=save.dpi)
    arguments = parser.parse_args()
    if MISSING:
        print(f"plot_reports: {MISSING}: install python3-matplotlib and python3-pandas", file=sys.stderr)
        return 3
    save.dpi = arguments.dpi
    for folder in arguments.reports:
        if not (folder / "throughput.csv").exists() and not (folder / "accuracy.csv").exists():
            refuse(f"{folder} holds neither throughput.csv nor accuracy.csv")
    out = arguments.out or arguments.reports[0] / "charts"
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse(error)

    times, checks = read(arguments.reports, "throughput.csv"), read(arguments.reports, "accuracy.csv")
    devices = {name for rows in (times, checks) if rows is not None for name in rows.device_name.dropna().unique()}
    if len(devices) > 1:
        refuse(f"rows of {' and '.join(sorted(devices))}: one device at a time")
    names, facts = [], []
    if times is not None:
        times = last_rows(times[times.status == "pass"], ["case_id", "kernel", "timing", "cache"])
        ways = times.timing.unique()
        if len(ways):
            times = times[(times.timing == (arguments.timing if arguments.timing in ways else ways[0])) & (times.cache == "cold")]
    if times is not None and not times.empty:
        first = times.iloc[0]
        facts += [("device", f"{first.device_name} ({first.arch})"), ("measured", first.started_utc), ("tool", f"{first.tool_version} {first.git_commit}"),
                  ("rows", f"{len(times)} {first.timing}, cold"), ("peaks", first.peak_source)]
        names += roofline(times, out) + time_over_batch(times, out)
    if checks is not None and not checks.empty:
        checks = last_rows(checks, ["case_id", "kernel", "tensor"])
        facts += [("accuracy", f"{(checks.status == 'pass').sum()} of {len(checks)} rows passed")]
        names += budget(checks, out)
    if not names:
        refuse("nothing to draw: no timed row, no judged row")
    page(out, f"Sparse MLA kernels on {sorted(devices)[0]}", facts, names)
    print("\n".join(str(out / name) for name in names + ["charts.html"]))


if __name__ == "__main__":
    main()
