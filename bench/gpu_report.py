#!/usr/bin/env python3
"""Makes one report of what the GPU benchmarks wrote: a JSON file of the schema slm-bench-1, and tables.

    gpu_report.py --json report.json --markdown report.md bench-gpu_model.json bench-gpu_speculative.json ...
    gpu_report.py --check report.json         says what is wrong with a file of the schema

The schema, the same for every vendor (docs/amd.md):
    {"schema": "slm-bench-1", "version", "date",
     "device": {"name", "architecture", "driver", "backend", "memory_bytes", "multiprocessors"},
     "results": [{"benchmark", "model", "format", "rows", "seconds", "bytes", "copy_bytes_per_second", ...}]}
seconds: median time of one call. bytes: read by it, at least. copy_bytes_per_second: read and written by a copy on the
device, measured beside it. Further numbers of a result are the benchmark's own.
"""
import argparse
import json
import pathlib
import re
import sys

SCHEMA = "slm-bench-1"
DEVICE = {"name": str, "architecture": str, "driver": str, "backend": str, "memory_bytes": int, "multiprocessors": int}
RESULT = {"benchmark": str, "model": str, "format": str, "rows": int, "seconds": float, "bytes": int, "copy_bytes_per_second": float}
# Counters of the programs that are not in the list above, by their names in the schema.
OWN = {"tokens/s": "tokens_per_second", "v(n)": "times_one_row", "TFLOP/s": "tflops", "draft_tokens": "draft_tokens",
       "plain_tokens/s": "plain_tokens_per_second", "speedup": "speedup", "tokens/target_step": "tokens_per_target_step"}


def faults_of(report):
    """What keeps a report from being one of the schema."""
    if report.get("schema") != SCHEMA:
        return [f"schema is {report.get('schema')!r}, expected {SCHEMA!r}"]
    faults = []
    for name, kind in DEVICE.items():
        if not isinstance(report.get("device", {}).get(name), kind):
            faults.append(f"device.{name} is no {kind.__name__}")
    if not report.get("results"):
        faults.append("there are no results")
    for number, result in enumerate(report.get("results", [])):
        for name, kind in RESULT.items():
            value = result.get(name)
            if not isinstance(value, kind) or (kind is not str and value < 0):
                faults.append(f"results[{number}].{name} is {value!r}, expected {kind.__name__}")
    return faults


def read(paths):
    report = None
    for path in paths:
        raw = json.loads(pathlib.Path(path).read_text())
        context = raw["context"]
        device = {"name": context["device"], "architecture": context["architecture"], "driver": context["driver"],
                  "backend": context["backend"], "memory_bytes": int(context["memory_bytes"]),
                  "multiprocessors": int(context["multiprocessors"])}
        if report is None:
            report = {"schema": SCHEMA, "version": context["slm_version"], "date": context["date"], "device": device, "results": []}
        if report["device"] != device:
            sys.exit(f"{path} comes from another device: {device}")
        for entry in raw["benchmarks"]:
            if entry.get("error_occurred"):
                report.setdefault("failures", []).append(f"{entry['name']}: {entry.get('error_message', '')}")
                continue
            if "seconds" not in entry:
                continue
            benchmark, model, form = re.sub(r"/(iterations|manual_time).*", "", entry["name"]).split("/")[:3]
            result = {"benchmark": benchmark, "model": model, "format": form, "rows": int(entry["rows"]), "seconds": entry["seconds"],
                      "bytes": int(entry["bytes"]), "copy_bytes_per_second": entry["copy_GB/s"] * 1e9}
            result.update({name: entry[counter] for counter, name in OWN.items() if counter in entry})
            report["results"].append(result)
    return report


def table(lines, title, head, rows):
    if not rows:
        return
    lines += ["", f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]


def markdown(report):
    device = report["device"]
    results = report["results"]
    copies = sorted(result["copy_bytes_per_second"] for result in results)
    lines = [f"# {device['name']} ({device['architecture']})", "",
             f"slm {report['version']}, backend {device['backend']}, driver {device['driver']}, "
             f"{device['memory_bytes'] / 2**30:.0f} GiB, {device['multiprocessors']} multiprocessors, {report['date']}. "
             f"A copy on the device reads and writes {copies[len(copies) // 2] / 1e9:.0f} GB/s."]
    if device["backend"].startswith("lanes"):
        lines += ["", "**Emulated: the times mean nothing.**"]

    def of(benchmark):
        return [result for result in results if result["benchmark"] == benchmark]

    def share(result):
        return f"{100 * result['bytes'] / result['seconds'] / result['copy_bytes_per_second']:.0f} %"

    table(lines, "Decode, one row", ["model", "format", "µs a step", "tokens/s", "GB/s", "share of the copy"],
          [[r["model"], r["format"], f"{r['seconds'] * 1e6:.0f}", f"{1 / r['seconds']:.0f}", f"{r['bytes'] / r['seconds'] / 1e9:.0f}", share(r)]
           for r in of("decode") if r["rows"] == 1])
    costs = {}
    for result in of("decode"):
        if "times_one_row" in result:
            costs.setdefault((result["model"], result["format"]), {})[result["rows"]] = result["times_one_row"]
    rows = sorted({rows for cost in costs.values() for rows in cost if rows > 1})
    table(lines, "Verifying n rows, in units of one", ["model", "format"] + [f"v({n})" for n in rows],
          [[*key, *(f"{cost[n]:.2f}" if n in cost else "" for n in rows)] for key, cost in costs.items()])
    blas = {result["model"]: result["tflops"] for result in of("blas")}
    table(lines, "Prefill", ["model", "format", "tokens", "tokens/s", "TFLOP/s", "the vendor's library, bf16", "share"],
          [[r["model"], r["format"], str(r["rows"]), f"{r['tokens_per_second']:.0f}", f"{r['tflops']:.1f}",
            f"{blas[r['model']]:.1f}" if r["model"] in blas else "not built", f"{100 * r['tflops'] / blas[r['model']]:.0f} %" if r["model"] in blas else ""]
           for r in of("prefill")])
    table(lines, "Speculative decoding, greedy", ["pair", "draft tokens", "plain tokens/s", "tokens/s", "speed-up", "tokens a target step"],
          [[r["model"], f"{r['draft_tokens']:.0f}", f"{r['plain_tokens_per_second']:.0f}", f"{r['tokens_per_second']:.0f}", f"{r['speedup']:.2f}",
            f"{r['tokens_per_target_step']:.2f}"] for r in of("speculative")])
    kernels = [result for result in results if result["benchmark"].startswith("op-")]
    table(lines, "Operation by operation", ["operation", "model", "format", "rows", "µs", "GB/s", "share of the copy"],
          [[r["benchmark"][3:], r["model"], r["format"], str(r["rows"]), f"{r['seconds'] * 1e6:.1f}", f"{r['bytes'] / r['seconds'] / 1e9:.0f}", share(r)]
           for r in kernels])
    if report.get("failures"):
        lines += ["", "## Failures", ""] + [f"- {failure}" for failure in report["failures"]]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--check", metavar="report.json")
    arguments = parser.parse_args()
    if arguments.check:
        faults = faults_of(json.loads(pathlib.Path(arguments.check).read_text()))
        print("\n".join(faults) or "sound")
        sys.exit(1 if faults else 0)
    if not arguments.inputs:
        parser.error("no inputs")
    report = read(arguments.inputs)
    faults = faults_of(report)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    text = markdown(report) if report["results"] else ""
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text(text)
    else:
        print(text)
    if faults or report.get("failures"):
        sys.exit("\n".join(faults + report.get("failures", [])))


if __name__ == "__main__":
    main()
