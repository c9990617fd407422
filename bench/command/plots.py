#!/usr/bin/env python3
"""The pictures of slm bench, drawn by matplotlib (Debian: python3-matplotlib).

    plots.py FOLDER     draws the pictures of a folder of `slm bench speculative` again, from its summary.json

Without arguments it serves slm. It reads one JSON object from standard input: {"summary": ...} of such a run, or
{"figures": [...]} of `slm bench compare`. It writes one to standard output: {"pictures": {file name: SVG}} or {"error": reason}.
"""
import io
import json
import math
import os
import pathlib
import sys
import textwrap

DEBIAN = "/usr/bin/python3"  # the interpreter of Debian's package, which may not be the first on the PATH
try:
    import matplotlib
    from matplotlib.figure import Figure
except ImportError:
    if os.path.realpath(sys.executable) != os.path.realpath(DEBIAN) and os.path.exists(DEBIAN):
        os.execv(DEBIAN, [DEBIAN, "-B", *sys.argv])
    matplotlib = None

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999")  # of Okabe and Ito
MARKS = "osD^vP*X"
FEW = 30  # positions with fewer rounds are not significant


def style():
    matplotlib.use("svg")
    matplotlib.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "slm", "text.parse_math": False, "font.size": 9,
        "axes.prop_cycle": matplotlib.cycler(color=COLOURS), "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "grid.color": "#dddddd", "axes.axisbelow": True})


def text(found, width):
    """Untrusted names: unprintable characters become a mark, and long names wrap."""
    return "\n".join(textwrap.wrap("".join(c if c.isprintable() else "\ufffd" for c in found), width, max_lines=3)) or " "


def measured(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0


def shown(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}" if abs(value) < 1e6 else f"{value:.2e}"


def bars(axes, chart):
    """Draws the groups below each other, with one bar per series or one stacked bar."""
    groups, series, stacked = chart["groups"], chart["series"], chart.get("stacked", False)
    count = 1 if stacked else max(len(series), 1)
    ends = [0.0] * len(groups)
    for s, name in enumerate(series):
        values = [group["values"][s] if s < len(group["values"]) else None for group in groups]
        widths = [value if measured(value) else 0 for value in values]
        places = [g + (0 if stacked else (s - (count - 1) / 2) * 0.8 / count) for g in range(len(groups))]
        drawn = axes.barh(places, widths, 0.8 / count, left=ends if stacked else 0, label=text(name, 28))
        if stacked:
            ends = [end + width for end, width in zip(ends, widths)]
        else:
            axes.bar_label(drawn, [shown(value) if measured(value) else "not measured" for value in values], padding=3, fontsize=8)
    if stacked:
        for g, end in enumerate(ends):
            axes.annotate(shown(end), (end, g), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(groups)), [text(group["label"], 34) for group in groups])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    axes.set_xlim(left=0)
    axes.set_xlabel(text(chart["unit"], 80))
    finish(axes, chart["title"], len(series) > 1)


def lines(axes, chart):
    for s, one in enumerate(chart["series"]):
        points = [point for point in one["points"] if all(isinstance(part, (int, float)) and math.isfinite(part) for part in point)]
        axes.plot([x for x, _ in points], [y for _, y in points], marker=MARKS[s % len(MARKS)], label=text(one["name"], 28))
    axes.set_ylim(bottom=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(text(chart["x"], 80))
    axes.set_ylabel(text(chart["y"], 60))
    finish(axes, chart["title"], len(chart["series"]) > 1)


def finish(axes, title, legend):
    axes.set_title(text(title, 80), loc="left", fontweight="bold")
    if legend:
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=8)


def picture(charts):
    """One SVG with the charts below each other."""
    heights = [3.6 if "x" in chart else 1.1 + 0.25 * len(chart["groups"]) * (1 if chart.get("stacked") else max(len(chart["series"]), 1.5))
               for chart in charts]
    figure = Figure(figsize=(9.5, sum(heights)), layout="constrained")
    for axes, chart in zip(figure.subplots(len(charts), squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0], charts):
        (lines if "x" in chart else bars)(axes, chart)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def charts_of(summary):
    """File name -> chart of a run of slm bench speculative, for the charts that have data."""
    sweep = {"measured": [], "predicted from acceptance per token": [], "predicted from counts": []}
    positions, shares, engines = [], [], []
    for found in summary["configurations"]:
        if found["engine"] != "slm":
            continue
        name = f"{found['setup']}, {found['sampling']}"
        if found["setup"] == "sweep":
            for points, value in zip(sweep.values(), ((found["decode_speedup"] or {}).get("median"), found["predicted_speedup"],
                                                      found["predicted_speedup_from_counts"])):
                if value is not None:
                    points.append((int(found["draft_length"]), value))
            continue
        often = [i for i, drafted in enumerate(found["drafted_by_position"]) if drafted >= FEW]
        positions.append({"name": name, "points": [(i + 1, found["acceptance_by_position"][i]) for i in often]})
        for kind in ("plain", "speculative"):
            thousands = max(found["new_tokens"][kind], 1) / 1000
            parts = [found["seconds"][kind][part] / thousands for part in ("prompt", "draft", "verify", "choose")]
            shares.append({"label": f"{name}, {kind}", "values": parts})
    for found in summary.get("engines", []):
        rates = [found["decode_tokens_per_second"][kind] for kind in ("plain", "speculative")]
        engines.append({"label": f"{found['engine']}, {found['sampling']}", "values": rates})
    charts = {}
    if sweep["measured"]:
        charts["speedup-by-draft-length.svg"] = {
            "title": "Speedup by draft length", "x": "drafted tokens per round", "y": "speedup",
            "series": [{"name": name, "points": sorted(points)} for name, points in sweep.items()]}
    if positions:
        charts["acceptance-by-position.svg"] = {"title": "Acceptance by position", "x": "position of the drafted token",
                                                "y": "kept / drafted", "series": positions}
    if shares:
        charts["time-shares.svg"] = {"title": "Where the time goes", "unit": "seconds for 1000 new tokens", "stacked": True,
                                     "series": ["prompt", "draft", "verify (target)", "choose"], "groups": shares}
    if engines:
        charts["other-engines.svg"] = {"title": "Engines on the same prompts and weights", "unit": "tokens per second of decoding",
                                       "series": ["plain", "speculative"], "groups": engines}
    return charts


def pictures_of(request):
    if matplotlib is None:
        return {"error": f"{sys.executable} has no matplotlib (Debian: apt-get install python3-matplotlib)"}
    style()
    if "figures" in request:
        return {"pictures": {"figures.svg": picture(request["figures"])}}
    return {"pictures": {name: picture([chart]) for name, chart in charts_of(request["summary"]).items()}}


def main():
    if len(sys.argv) < 2:
        print(json.dumps(pictures_of(json.loads(sys.stdin.readline()))), flush=True)
        return
    folder = pathlib.Path(sys.argv[1])
    answer = pictures_of({"summary": json.loads((folder / "summary.json").read_text())})
    if "error" in answer:
        sys.exit(answer["error"])
    for name, svg in answer["pictures"].items():
        (folder / name).write_text(svg)
        print(folder / name)


if __name__ == "__main__":
    main()
