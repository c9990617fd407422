#!/usr/bin/env python3
"""Checks the machine code of every GPU kernel. Prints its counts (code_counts.py), and fails if a kernel spills registers,
lacks its matrix instructions, does not wait for the previous kernel as required, or exceeds the limits of
code_bounds.txt.

    code_objects.py ROOT --cuda 80 90 --hip gfx90a gfx1100 gfx1103 --rocm build/rocm --scratch build

tests/compile/gpu_kernels.cpp names the kernels. The name of a kernel states whether it multiplies matrices (MATRIX below).
Columns: registers of a lane (on AMD those of both kinds), AGPRs and SGPRs of AMD; bytes of shared memory of a block;
waves per SIMD that registers allow, and blocks per compute unit that shared memory allows; bytes of stack; spilled
registers; matrix instructions. For the longest loop: instructions, matrix instructions, loads of device memory as bytes of
a lane x number, and instructions of a wave per loaded byte. Loops of NVIDIA's code are counted if nvdisasm is
installed.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import code_counts

ENTRY = re.compile(r"_ZN3slm(\d+v\d+_\d+)?3gpuL?5entryI")
# Kernels for the matrix unit, by the name of their type.
MATRIX = re.compile(r"\b(Product|Attend|Persistent|Gemm|Gemv|Matmul|PlantedMatrix)\w*")
# Kernels that prefetch weights before they wait for the previous kernel (backend/gpu/runtime/launch.hpp). Products of
# experts first read the choice of experts.
EARLY = re.compile(r"\bProduct(?!Expert)\w*")
# Sine and cosine of large angles use memory for their reduction (NVIDIA's libdevice).
SINE = re.compile(r"QueriesKeysValues|Shape(Rotated)?Qkv|PersistentStep")
SINE_STACK = 32
# In persistent kernels, Embed of codes stores four scales there and uses one.
SCALES = re.compile(r"PersistentStep<Int\d>")
SCALES_STACK = 16
INSTRUCTIONS = {"sm": re.compile(r"^\s*mma\.sync|^\s*wgmma", re.M), "gfx9": re.compile(r"^\s*v_mfma_", re.M), "gfx11": re.compile(r"^\s*v_wmma_", re.M)}


class Kernel:
    def __init__(self, architecture, symbol):
        self.architecture, self.symbol = architecture, symbol
        self.registers = self.accumulators = self.scalars = 0
        self.shared = self.spills = self.stack = self.matrix = 0
        self.loop = None  # unknown
        self.wait = None  # a fault of its wait for the previous kernel; else unknown

    def measures(self):
        """Names of the counts in bounds."""
        machine = code_counts.MACHINES.get(self.architecture)
        found = {"registers": self.registers, "shared": self.shared}
        if machine:
            found["waves"] = code_counts.waves(machine, self.registers)
            found["blocks"] = code_counts.blocks(machine, self.shared)
        if self.loop:
            found.update({"loop": self.loop.instructions, "loop_matrix": self.loop.matrix, "narrow_loads": self.loop.narrow()})
            loaded = self.loop.loaded(machine.lanes) if machine else 0
            if loaded:
                found["per_byte"] = self.loop.instructions / loaded
        return found


def run(command):
    result = subprocess.run(command, text=True, capture_output=True)
    if result.returncode:
        sys.exit(f"failed: {' '.join(command)}\n{result.stderr[-4000:]}")
    return result.stdout + result.stderr


def cuda_kernels(arguments, architecture, source):
    """Through PTX, which contains the instructions, and ptxas, which counts registers."""
    ptx = pathlib.Path(arguments.scratch) / f"kernels_sm_{architecture}.ptx"
    flags = ["-std=c++20", "--expt-relaxed-constexpr", "-O3", "-w", f"-arch=sm_{architecture}", f"-I{arguments.root}/include"]
    run([arguments.nvcc, *flags, "-x", "cu", "-ptx", str(source), "-o", str(ptx)])
    assembler = str(pathlib.Path(shutil.which(arguments.nvcc)).resolve().parent / "ptxas")
    report = run([assembler, "-v", "-O3", f"-arch=sm_{architecture}", str(ptx), "-o", str(ptx.with_suffix(".cubin"))])
    kernels = {}
    for symbol, body in re.findall(r"\.entry\s+([\w$]+)\((.*?)(?=\.entry|\Z)", ptx.read_text(), re.S):
        kernel = kernels[symbol] = Kernel(f"sm_{architecture}", symbol)
        kernel.matrix = len(INSTRUCTIONS["sm"].findall(body))
    seen = set()
    for symbol, lines in re.findall(r"Compiling entry function '([\w$]+)'[^\n]*\n(.*?)(?=Compiling entry|\Z)", report, re.S):
        kernel = kernels[symbol]
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", lines)
        used = re.search(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?", lines)
        kernel.stack, kernel.spills = int(stack[1]), int(stack[2]) + int(stack[3])
        kernel.registers, kernel.shared = int(used[1]), int(used[2] or 0)
        seen.add(symbol)
    if arguments.nvdisasm:
        listing = run([arguments.nvdisasm, "-c", str(ptx.with_suffix(".cubin"))])
        for symbol, body in re.findall(r"^\.text\.([\w$]+):\n(.*?)(?=^//-----|\Z)", listing, re.S | re.M):
            kernels[symbol].loop = code_counts.longest_loop(body, sass=True)
            if int(architecture) >= 90 and ENTRY.match(symbol):
                kernels[symbol].wait = code_counts.fault_of_wait(body, bool(EARLY.search(readable([symbol])[symbol])))
    if seen != set(kernels):
        sys.exit(f"ptxas says nothing of {sorted(set(kernels) - seen)}")
    return list(kernels.values())


def hip_kernels(arguments, architecture, source):
    """From the assembly, which ends with a table of resources."""
    listing = pathlib.Path(arguments.scratch) / f"kernels_{architecture}.s"
    flags = ["-std=c++20", "-O3", "-w", f"--offload-arch={architecture}", f"--rocm-path={arguments.rocm}", f"-I{arguments.root}/include"]
    run([arguments.clang, "-x", "hip", *flags, "--cuda-device-only", "--no-gpu-bundle-output", "-S", str(source), "-o", str(listing)])
    text = listing.read_text()
    family = "gfx9" if architecture.startswith("gfx9") else "gfx11"
    kernels = []
    for entry in re.split(r"^  - (?=\.)", text[text.index("amdhsa.kernels:") :], flags=re.M)[1:]:
        fields = dict(re.findall(r"^\s*\.(\w+):\s+'?([\w$.@]+)'?$", entry, re.M))
        if "symbol" not in fields:
            continue
        kernel = Kernel(architecture, fields["name"])
        kernel.registers = int(fields["vgpr_count"])
        kernel.accumulators, kernel.scalars = int(fields.get("agpr_count", 0)), int(fields["sgpr_count"])
        kernel.shared = int(fields["group_segment_fixed_size"])
        kernel.spills = int(fields["vgpr_spill_count"])
        kernel.stack = int(fields["private_segment_fixed_size"])
        start = text.index(f"\n{fields['name']}:")
        body = text[start : text.index(".Lfunc_end", start)]
        kernel.matrix = len(INSTRUCTIONS[family].findall(body))
        kernel.loop = code_counts.longest_loop(body, sass=False)
        kernels.append(kernel)
    return kernels


def readable(symbols):
    names = subprocess.run(["c++filt"], input="\n".join(symbols), text=True, capture_output=True, check=True).stdout.splitlines()
    short = {}
    for symbol, name in zip(symbols, names):
        inner = re.search(r"entry<(.*)>\(", name)
        short[symbol] = re.sub(r"slm::(v\d+_\d+::)?(gpu::)?(detail::)?", "", inner[1] if inner else name).strip()
    return short


def kernels_of(program):
    """The readable names of the kernels of a GPU program."""
    symbols = subprocess.run(["nm", "--defined-only", program], text=True, capture_output=True, check=True).stdout.split()
    stubs = [symbol for symbol in symbols if ENTRY.match(symbol)]
    return set(readable(stubs).values())


def find_nvdisasm(arguments):
    """Beside nvcc, on the PATH, or in NVIDIA's pip package."""
    nvcc = shutil.which(arguments.nvcc)
    packaged = sorted(pathlib.Path(arguments.root).glob("build/clients/lib/python3*/site-packages/nvidia/cu*/bin/nvdisasm"))
    places = [pathlib.Path(nvcc).resolve().parent / "nvdisasm"] if nvcc else []
    places += [pathlib.Path(found)] if (found := shutil.which("nvdisasm")) else []
    for place in places + packaged:
        if place.exists():
            place.chmod(place.stat().st_mode | 0o111) if place in packaged else None
            return str(place)
    return ""


def check_bounds(bounds, kernels, names, architectures):
    """Faults: exceeded bounds, and bounds that match no kernel."""
    faults = []
    for pattern, targets, measure, relation, number in bounds:
        for target in fnmatch.filter(sorted(architectures), targets):
            own = [kernel for kernel in kernels if kernel.architecture == target and fnmatch.fnmatchcase(names[kernel.symbol], pattern)]
            if not own:
                faults.append(f"{pattern} of the bounds names no kernel on {target}")
            for kernel in own:
                found = kernel.measures()
                if kernel.loop is None and measure not in found:
                    continue  # no disassembler is installed
                value = found.get(measure)
                if value is None or not (value <= number if relation == "<=" else value >= number):
                    said = "no" if value is None else f"{value:.4g}"
                    faults.append(f"{names[kernel.symbol]} has {said} {measure} on {target}, stated is {relation} {number:g}")
    return faults


def row_of(name, kernel):
    found, loop = kernel.measures(), kernel.loop
    loads = " ".join(f"{width}x{count}" for width, count in sorted(loop.loads.items(), reverse=True)) if loop else "-"
    cells = [(name[:58], -58), (kernel.architecture, -8), (kernel.registers, 9), (kernel.accumulators, 5), (kernel.scalars, 5), (kernel.shared, 7)]
    cells += [(found.get("waves", "-"), 6), (found.get("blocks", "-"), 7), (kernel.stack, 6), (kernel.spills, 8), (kernel.matrix, 7)]
    cells += [(loop.instructions if loop else "-", 6), (loop.matrix if loop else "-", 7), (loads, 24)]
    cells += [(f"{found['per_byte']:.3f}" if "per_byte" in found else "-", 9)]
    return " ".join(f"{str(cell):<{-width}}" if width < 0 else f"{str(cell):>{width}}" for cell, width in cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root")
    parser.add_argument("--cuda", nargs="*", default=[], metavar="80")
    parser.add_argument("--hip", nargs="*", default=[], metavar="gfx90a")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--clang", default="/usr/lib/llvm-19/bin/clang++")
    parser.add_argument("--rocm", default="/opt/rocm")
    parser.add_argument("--scratch", default="/tmp")
    parser.add_argument("--source", help="instead of tests/compile/gpu_kernels.cpp")
    parser.add_argument("--bounds", help="instead of tests/compile/code_bounds.txt")
    parser.add_argument("--program", help="a program whose kernels must all be in the list")
    parser.add_argument("--expect-faults", type=int, help="as a control: that many faults must be found on each architecture, one of them in a loop")
    arguments = parser.parse_args()
    source = pathlib.Path(arguments.source or f"{arguments.root}/tests/compile/gpu_kernels.cpp")
    bounds = code_counts.read_bounds(pathlib.Path(arguments.bounds or f"{arguments.root}/tests/compile/code_bounds.txt"))
    arguments.nvdisasm = find_nvdisasm(arguments) if arguments.cuda else ""
    pathlib.Path(arguments.scratch).mkdir(parents=True, exist_ok=True)

    before = time.monotonic()
    jobs = [(cuda_kernels, name) for name in arguments.cuda] + [(hip_kernels, name) for name in arguments.hip]
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("SLM_JOBS", 0)) or os.cpu_count() or 1) as pool:
        found = list(pool.map(lambda job: job[0](arguments, job[1], source), jobs))
    kernels = [kernel for some in found for kernel in some]
    names = readable([kernel.symbol for kernel in kernels])

    faults = []
    print(
        f"{'kernel':<58} {'target':<8} {'registers':>9} {'AGPR':>5} {'SGPR':>5} {'shared':>7} {'waves':>6} {'blocks':>7} {'stack':>6} {'spilled':>8} {'matrix':>7}"
        f" {'loop':>6} {'matrix':>7} {'loads':>24} {'per byte':>9}"
    )
    for kernel in sorted(kernels, key=lambda kernel: (names[kernel.symbol], kernel.architecture)):
        name = names[kernel.symbol]
        print(row_of(name, kernel))
        if kernel.spills:
            faults.append(f"{name} spills {kernel.spills} registers' worth on {kernel.architecture}")
        elif kernel.stack > (SINE_STACK if SINE.search(name) else 0) + (SCALES_STACK if SCALES.search(name) else 0):
            faults.append(f"{name} keeps {kernel.stack} bytes a thread in memory on {kernel.architecture}")
        if MATRIX.search(name) and not kernel.matrix:
            faults.append(f"{name} has no matrix instruction on {kernel.architecture}")
        if kernel.wait:
            faults.append(f"{name} {kernel.wait} on {kernel.architecture}")
    for architecture, some in zip([job[1] for job in jobs], found):
        if not some:
            faults.append(f"no kernel was found for {architecture}")
    faults += check_bounds(bounds, kernels, names, {job[1] if job[0] is hip_kernels else f"sm_{job[1]}" for job in jobs})
    if arguments.cuda and not arguments.nvdisasm:
        print("no nvdisasm: the loops of NVIDIA's code were not counted, nor checked against their bounds, nor were waits looked for")
    if arguments.program:
        used = kernels_of(arguments.program)
        print(f"{arguments.program} holds {len(used)} kernels")
        faults += [f"{name} is missing in {source.name}" for name in sorted(used - set(names.values()))]
        faults += [] if used else [f"no kernel was found in {arguments.program}"]
    print("\n".join(faults))
    print(f"{len(kernels)} kernels for {len(jobs)} architectures, {len(faults)} faults, {time.monotonic() - before:.0f} s")
    if arguments.expect_faults is not None:
        unseen = 0 if arguments.nvdisasm else len(arguments.cuda)
        sys.exit(0 if len(faults) == arguments.expect_faults * len(jobs) - unseen else 1)
    sys.exit(1 if faults or not kernels else 0)


if __name__ == "__main__":
    main()
