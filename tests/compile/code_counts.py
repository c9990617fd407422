"""Counts from the machine code of a GPU kernel: its longest loop, the matrix instructions and loads in it, and the number
of waves that registers and shared memory allow. AMD's code is clang's assembly, NVIDIA's the output of nvdisasm.
Instructions are counted statically, each once, even if a branch skips it.
"""
import re
from dataclasses import dataclass, field

AMD_LABEL, AMD_BRANCH = re.compile(r"^(\.LBB\w+):"), re.compile(r"^\s+s_c?branch\w*\s+(\.LBB\w+)")
SASS_LABEL, SASS_BRANCH = re.compile(r"^(\.L_x\w+):"), re.compile(r"\bBRA\b[^;]*`\((\.L_x\w+)\)")
SASS_LINE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z][\w.]*)")
AMD_LINE = re.compile(r"^\s+([a-z]\w+)")
MATRIX = re.compile(r"v_mfma_|v_wmma_|HMMA\.|HGMMA\.")
AMD_LOAD = re.compile(r"(global|flat|buffer|scratch)_load_(\w+)")
DEVICE_MEMORY = re.compile(r"(LDG|LDGSTS|LD|STG|ST|ATOMG?|REDG?|EXIT)(\.|$)")
AMD_WIDTHS = {"dwordx4": 16, "b128": 16, "dwordx3": 12, "b96": 12, "dwordx2": 8, "b64": 8, "dword": 4, "b32": 4}


@dataclass
class Loop:
    """The smallest loop with the most matrix instructions; without any, the longest innermost loop."""

    instructions: int = 0
    matrix: int = 0
    loads: dict = field(default_factory=dict)  # of device memory: bytes a lane -> how many

    def narrow(self):
        return sum(count for width, count in self.loads.items() if width < 8)

    def loaded(self, lanes):
        return lanes * sum(width * count for width, count in self.loads.items())


def width_of(mnemonic):
    """Bytes that a lane loads from device memory; 0 for other instructions."""
    amd = AMD_LOAD.match(mnemonic)
    if amd:
        kind = re.sub(r"_(e32|e64|nc)$", "", amd[2])
        return AMD_WIDTHS.get(kind, 1 if re.search(r"byte|[iu]8", kind) else 2)
    parts = mnemonic.split(".")
    if parts[0] not in ("LDG", "LD", "LDGSTS"):
        return 0
    for suffix, width in (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
        if suffix in parts:
            return width
    return 4


def fault_of_wait(text, early):
    """Faults of the wait for the previous kernel in NVIDIA's code. No access to device memory may precede it, except in a
    kernel with `early` loads, of which one must have 16 bytes.
    """
    mnemonics = [found[1] for found in map(SASS_LINE.match, text.splitlines()) if found]
    if mnemonics.count("ACQBULK") != 1:
        return f"waits {mnemonics.count('ACQBULK')} times for the previous kernel"
    before = [name for name in mnemonics[: mnemonics.index("ACQBULK")] if DEVICE_MEMORY.match(name)]
    if early and 16 not in map(width_of, before):
        return "asks for no weights before it waits for the previous kernel"
    wrong = [name for name in before if not (early and width_of(name))]
    return f"has {wrong[0]} before it waits for the previous kernel" if wrong else ""


def longest_loop(text, sass):
    label, branch, line_of = (SASS_LABEL, SASS_BRANCH, SASS_LINE) if sass else (AMD_LABEL, AMD_BRANCH, AMD_LINE)
    mnemonics, labels, backward = [], {}, []
    for line in text.splitlines():
        here = label.match(line)
        if here:
            labels[here[1]] = len(mnemonics)
            continue
        instruction = line_of.match(line)
        if not instruction:
            continue
        mnemonics.append(instruction[1])
        to = branch.search(line)
        if to and to[1] in labels and labels[to[1]] < len(mnemonics) - 1:
            backward.append((labels[to[1]], len(mnemonics)))
    loops = []
    for first, last in set(backward):
        body = mnemonics[first:last]
        matrix = sum(bool(MATRIX.match(name)) for name in body)
        inner = any(first <= a and b <= last and (a, b) != (first, last) for a, b in backward)
        loops.append((matrix, 0 if matrix else not inner, -len(body) if matrix else len(body), body))
    if not loops:
        return Loop()
    matrix, _, _, body = max(loops, key=lambda loop: loop[:3])
    loop = Loop(len(body), matrix)
    for width in filter(None, map(width_of, body)):
        loop.loads[width] = loop.loads.get(width, 0) + 1
    return loop


@dataclass
class Machine:
    """Resources that waves and blocks share: registers of a lane in a SIMD (an SM's quarter), shared bytes of a compute unit."""

    registers: int
    granule: int
    most_waves: int
    shared: int
    reserved: int = 0  # additional shared bytes of a block
    lanes: int = 32


MACHINES = {
    "sm_80": Machine(512, 8, 16, 164 * 1024, 1024),
    "sm_90": Machine(512, 8, 16, 228 * 1024, 1024),
    "gfx90a": Machine(512, 8, 8, 64 * 1024, lanes=64),
    "gfx1100": Machine(1536, 24, 16, 64 * 1024),
    "gfx1103": Machine(1024, 16, 16, 64 * 1024),
}


def waves(machine, registers):
    """Waves per SIMD, limited by registers."""
    taken = -(-max(registers, 1) // machine.granule) * machine.granule
    return min(machine.most_waves, machine.registers // taken)


def blocks(machine, shared):
    """Blocks per compute unit, limited by shared memory."""
    return machine.shared // (shared + machine.reserved) if shared else 0


def read_bounds(path):
    """Lines `kernels targets measure<=number measure>=number ...`: [(kernels, targets, measure, relation, number)]."""
    bounds = []
    for line in path.read_text().splitlines():
        found = re.fullmatch(r"(\S.*?) +([\w*]+)((?: +\w+[<>]=[\d.]+)+)", line.split("#")[0].rstrip())
        if found:
            for measure, relation, number in re.findall(r"(\w+)([<>]=)([\d.]+)", found[3]):
                bounds.append((found[1], found[2], measure, relation, float(number)))
        elif line.split("#")[0].strip():
            raise SystemExit(f"{path}: no bounds: {line}")
    return bounds
