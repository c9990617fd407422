#!/usr/bin/env python3
"""Runs a Python function that a model wrote, and its test, each in a sandbox.

`slm bench` writes one JSON object to standard input and reads one from standard output. {"prepare": true} finds bubblewrap
and returns the layers that this system supports. Any other object runs a program. Program and test are two processes in
separate sandboxes. The program receives only its source and its arguments. The judge runs the test and calls the program
through a pipe, with plain values only. A program therefore cannot pass by changing its interpreter: by exiting early,
printing a verdict, replacing builtins, or returning an object that equals everything.
"""
import json
import os
import resource
import sys

OUT_OF_MEMORY = 77  # exit status
LONGEST_REPLY = 16 << 20
INSIDE = "/sandbox.py"  # path of this file inside the sandbox
NOBODY = 65534


# ---- values as JSON with their types, and back; other values become an Opaque, which equals nothing else


class Opaque:
    def __init__(self, kind):
        self.kind = kind

    def __repr__(self):
        return f"<{self.kind}>"


def pack(value):
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return ["int", hex(value)]
    if isinstance(value, float):
        return ["float", float.hex(value)]
    if isinstance(value, complex):
        return ["complex", value.real.hex(), value.imag.hex()]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", value.hex()]
    if isinstance(value, range):
        return ["range", [pack(part) for part in (value.start, value.stop, value.step)]]
    if isinstance(value, dict):
        return ["dict", [[pack(key), pack(item)] for key, item in value.items()]]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return [kind.__name__, [pack(item) for item in value]]
    if type(value).__module__ == "fractions":
        return ["fraction", hex(value.numerator), hex(value.denominator)]
    if type(value).__module__ == "decimal":
        return ["decimal", str(value)]
    if hasattr(value, "__index__"):
        return ["int", hex(value.__index__())]
    if hasattr(value, "__iter__"):
        return ["iterator", [pack(item) for item in value]]
    return ["opaque", type(value).__name__]


def fraction(numerator, denominator):
    from fractions import Fraction
    return Fraction(int(numerator, 16), int(denominator, 16))


def decimal(text):
    from decimal import Decimal
    return Decimal(text)


UNPACK = {
    "int": lambda content: int(content, 16),
    "float": float.fromhex,
    "complex": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "bytes": bytes.fromhex,
    "range": lambda content: range(*map(unpack, content)),
    "dict": lambda content: {unpack(key): unpack(item) for key, item in content},
    "list": lambda content: [unpack(item) for item in content],
    "tuple": lambda content: tuple(map(unpack, content)),
    "set": lambda content: set(map(unpack, content)),
    "frozenset": lambda content: frozenset(map(unpack, content)),
    "iterator": lambda content: iter([unpack(item) for item in content]),
    "fraction": fraction,
    "decimal": decimal,
    "opaque": lambda kind: Opaque(str(kind)),
}


def unpack(value):
    return UNPACK[value[0]](*value[1:]) if isinstance(value, list) else value


def send(stream, message):
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def last_line(error):
    try:
        text = str(error).strip().splitlines()
    except Exception:
        text = []
    return (type(error).__name__ + (": " + text[-1] if text else ""))[:300]


# ---- inside the sandbox


def confine(processor_seconds, memory, file_size):
    """Sets limits and forbids further processes and threads. Root changes to uid 65534, whose processes the kernel counts."""
    for what, soft, hard in ((resource.RLIMIT_CPU, processor_seconds, processor_seconds + 1),
                             (resource.RLIMIT_AS, memory, memory), (resource.RLIMIT_FSIZE, file_size, file_size),
                             (resource.RLIMIT_NOFILE, 64, 64), (resource.RLIMIT_CORE, 0, 0), (resource.RLIMIT_NPROC, 0, 0)):
        most = resource.getrlimit(what)[1]  # the parent may have lowered it
        resource.setrlimit(what, tuple(value if most == resource.RLIM_INFINITY else min(value, most) for value in (soft, hard)))
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def serve(requests, replies):
    """Runs the program: answers calls of the function that its source defines."""
    requests, replies = os.fdopen(requests, "rb"), os.fdopen(replies, "wb")
    send(replies, "ready")
    space = {}
    for line in requests:
        request = json.loads(line)
        try:
            if "source" in request:
                exec(compile(request["source"], "<program>", "exec"), space)
                function = space[request["entry_point"]]
                reply = {"defined": True}
            else:
                arguments, named = unpack(request["arguments"])
                reply = {"value": pack(function(*arguments, **named))}
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BaseException as error:
            reply = {"error": last_line(error)}
        try:
            send(replies, reply)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)


class Ended(BaseException):
    pass


class Raised(Exception):
    pass


def judge(requests, replies, job, verdict):
    requests, replies, verdict = os.fdopen(requests, "wb"), os.fdopen(replies, "rb"), os.fdopen(verdict, "wb")
    send(verdict, "ready")
    with os.fdopen(job, "rb") as file:
        job = json.load(file)
    send(verdict, judgement(job, requests, replies))
    os._exit(0)


def judgement(job, requests, replies):
    if replies.readline(64) != b'"ready"\n':
        return {"verdict": "not started"}

    def ask(request):
        try:
            send(requests, request)
        except BrokenPipeError:
            raise Ended
        line = replies.readline(LONGEST_REPLY)
        if not line.endswith(b"\n"):
            if len(line) < LONGEST_REPLY:
                raise Ended
            raise Raised("its result is larger than 16 MiB")
        reply = json.loads(line)
        if "error" in reply:
            raise Raised(reply["error"])
        return unpack(reply.get("value"))

    def candidate(*arguments, **named):
        return ask({"arguments": pack((arguments, named))})

    space = {}
    try:
        ask({"source": job["source"], "entry_point": job["entry_point"]})
        exec(compile(job["helpers"], "<helpers>", "exec"), space)
        space[job["entry_point"]] = candidate
        exec(compile(job["test"], "<test>", "exec"), space)
        space["check"](candidate)
        return {"verdict": "passed"}
    except Ended:
        return {"verdict": "ended"}
    except Raised as error:
        return {"verdict": "failed", "detail": str(error)[:300]}
    except AssertionError as error:
        trace, number = error.__traceback__, 0
        while trace:
            if trace.tb_frame.f_code.co_filename == "<test>":
                number = trace.tb_lineno
            trace = trace.tb_next
        lines = job["test"].split("\n")
        where = lines[number - 1].strip()[:200] if 0 < number <= len(lines) else ""
        return {"verdict": "failed", "detail": "AssertionError: " + where}
    except BaseException as error:
        return {"verdict": "failed", "detail": last_line(error)}


# ---- outside the sandbox


def shown_places():
    """The folders that Python needs: system programs and libraries, and its own folders if they contain nothing else."""
    places = []
    home = os.path.expanduser("~")
    for place in ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", sys.prefix, sys.base_prefix, sys.exec_prefix,
                  os.path.dirname(os.path.realpath(sys.executable))):
        too_wide = place in ("/", "/etc") or os.path.commonpath((home, place)) == place
        there = any(os.path.commonpath((other, place)) == other for other in places)
        if os.path.exists(place) and not too_wide and not there:
            places.append(place)
    return places


def walls(bwrap, folder):
    """A command that runs Python with only its files visible, and only a small in-memory /tmp writable."""
    command = [*bwrap, "--die-with-parent", "--new-session", "--clearenv"]
    command += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    for place in shown_places():
        for folder_above in list(pathlib.PurePath(place).parents)[-2::-1]:
            command += ["--dir", str(folder_above)]  # searchable by all users, unlike the folders that bwrap creates
        command += ["--ro-bind", place, place]
    command += ["--ro-bind", __file__, INSIDE]
    command += ["--perms", "1777", "--size", str(folder), "--tmpfs", "/tmp", "--chdir", "/tmp", "--remount-ro", "/"]
    return command + [sys.executable, "-I", "-B", "-X", "utf8", INSIDE]


def ways_to_bwrap():
    """Users need a user namespace. Privileged root needs none; other root changes to uid 65534 first."""
    as_user = ["bwrap", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"]
    if os.getuid() != 0:
        return [as_user]
    privileged = ["bwrap", "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [privileged, ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *as_user]]


def prepare(limits):
    """The layers that this system supports."""
    if shutil.which("bwrap") is None:
        return {"error": "sandbox.no-bubblewrap"}
    failures = []
    for bwrap in ways_to_bwrap():
        built = walls(bwrap, limits["folder"])
        tried = subprocess.run([*built, "nothing", *limits_of(limits)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               errors="replace")
        if tried.returncode == 0:
            version = subprocess.run(["bwrap", "--version"], capture_output=True, text=True).stdout.strip()
            return {"walls": built, "version": version, "python": "%d.%d.%d" % sys.version_info[:3]}
        failures.append((tried.stderr.strip().splitlines() or ["no message"])[-1][:300])
    no_walls = all(said.startswith(("bwrap: ", "setpriv: ")) and "bwrap: execvp" not in said for said in failures)
    return {"error": "sandbox.unavailable" if no_walls else "sandbox.broken", "detail": "; ".join(failures)}


def limits_of(limits):
    return [str(limits[name]) for name in ("processor_seconds", "memory", "folder")]


def run(request):
    limits, began = request["limits"], time.monotonic()
    (asked, asks), (answered, answers), (told, tells) = os.pipe(), os.pipe(), os.pipe()
    job = os.memfd_create("job")
    with os.fdopen(os.dup(job), "wb") as file:
        file.write(json.dumps(request["job"]).encode())
    os.lseek(job, 0, os.SEEK_SET)

    def start(role, *files):
        command = [*request["walls"], role, *limits_of(limits), *map(str, files)]
        return subprocess.Popen(command, pass_fds=files, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    program = start("program", asked, answers)
    judging = start("judge", asks, answered, job, tells)
    for file in (asked, asks, answered, answers, tells, job):
        os.close(file)
    late = False
    try:
        judging.wait(limits["seconds"])
    except subprocess.TimeoutExpired:
        late = True
        judging.kill()
    with os.fdopen(told, "rb") as file:
        said = [json.loads(line) for line in file.read().splitlines()]
    found = said[1] if len(said) > 1 else {"verdict": "ended"}
    cut = False
    if not late and found["verdict"] == "ended":
        try:
            program.wait(2)
        except subprocess.TimeoutExpired:
            cut = True
    program.kill()
    judging.wait()
    program.wait()
    if not said and not late or found["verdict"] == "not started":
        return {"error": "sandbox.no-process", "detail": "bwrap ended before it ran anything"}
    seconds = time.monotonic() - began
    verdict = {"detail": "", **verdict_of(found, late, cut, program.returncode, seconds, limits), "seconds": seconds}
    return {**verdict, "detail": verdict["detail"].encode(errors="replace").decode()}  # replaces incomplete characters


def verdict_of(found, late, cut, status, seconds, limits):
    if late:
        return {"verdict": "timed out", "detail": f"after {limits['seconds']} s"}
    if found["verdict"] != "ended":
        return found
    if cut:
        return {"verdict": "failed", "detail": "the test did not end: its connection to the program was cut"}
    # The program ended before its test did. bwrap reports a signal as a shell does.
    number = status - 128
    killed_early = number == signal.SIGKILL and seconds < limits["processor_seconds"]  # by a system out of memory
    if status == OUT_OF_MEMORY or killed_early:
        return {"verdict": "out of memory", "detail": f"of {limits['memory'] >> 20} MiB"}
    if number in (signal.SIGXCPU, signal.SIGKILL):
        return {"verdict": "timed out", "detail": f"after {limits['processor_seconds']} s of processor time"}
    if number in set(signal.Signals):
        return {"verdict": "crashed", "detail": signal.Signals(number).name}
    return {"verdict": "failed", "detail": f"it ended (status {status}) before its test did"}


def end_with_slm():
    """The end of standard input ends this process, even after a crash of slm. bwrap ends with this process, and so do its children."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        role, *numbers = sys.argv[1:]
        numbers = [int(number) for number in numbers]
        confine(*numbers[:3])
        {"nothing": lambda: None, "program": serve, "judge": judge}[role](*numbers[3:])
    else:
        import pathlib
        import shutil
        import signal
        import subprocess
        import threading
        import time
        request = json.loads(sys.stdin.buffer.readline())
        threading.Thread(target=end_with_slm, daemon=True).start()
        try:
            answer = run(request) if "job" in request else prepare(request["limits"])
        except OSError as error:
            answer = {"error": "sandbox.no-process", "detail": last_line(error)}
        print(json.dumps(answer), flush=True)
        os._exit(0)
