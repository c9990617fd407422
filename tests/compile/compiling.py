"""Runs a compiler over many small sources in parallel."""
import concurrent.futures
import os
import subprocess


def syntax_only(compiler, root, source, *flags):
    """Compiles `source` (text) without making an object; returns (exit status, messages)."""
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow"]
    command += [f"-I{root}/include", f"-DSLM_SOURCE_DIR=\"{root}\"", *flags, "-x", "c++", "-"]
    result = subprocess.run(command, input=source, text=True, capture_output=True, timeout=600)
    return result.returncode, result.stderr


def precompile(compiler, root, header, path):
    """Compiles `header` into path.gch, for syntax_only(..., "-include", path)."""
    path.write_text(f'#include "{header}"\n')
    command = [compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", f"-I{root}/include",
               f"-DSLM_SOURCE_DIR=\"{root}\"", "-x", "c++-header", str(path), "-o", f"{path}.gch"]
    subprocess.run(command, check=True, timeout=600)


def in_parallel(function, items):
    workers = int(os.environ.get("SLM_JOBS", 0)) or os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
