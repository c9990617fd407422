// The two Python programs of the sandbox, and the language they speak: one JSON value a line.
#pragma once

namespace slm::bench::python {

/// Exit status of a program that had no memory left.
constexpr int out_of_memory = 77;

/// Values as JSON that tells their types, and back. What cannot be said becomes an Opaque, which equals nothing else.
constexpr char wire[] = R"py(
import json, os, sys

class Opaque:
    def __init__(self, kind): self.kind = kind
    def __repr__(self): return "<" + self.kind + ">"

def pack(value):
    if value is None or value is True or value is False: return value
    if isinstance(value, str): return str.__str__(value)
    if isinstance(value, int): return ["int", hex(value)]
    if isinstance(value, float): return ["float", float.hex(value)]
    if isinstance(value, complex): return ["complex", value.real.hex(), value.imag.hex()]
    if isinstance(value, (bytes, bytearray)): return ["bytes", value.hex()]
    if isinstance(value, range): return ["range", [pack(part) for part in (value.start, value.stop, value.step)]]
    if isinstance(value, dict): return ["dict", [[pack(key), pack(item)] for key, item in value.items()]]
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind): return [kind.__name__, [pack(item) for item in value]]
    if type(value).__module__ == "fractions": return ["fraction", hex(value.numerator), hex(value.denominator)]
    if type(value).__module__ == "decimal": return ["decimal", str(value)]
    if hasattr(value, "__index__"): return ["int", hex(value.__index__())]
    if hasattr(value, "__iter__"): return ["iterator", [pack(item) for item in value]]
    return ["opaque", type(value).__name__]

def unpack(value):
    if not isinstance(value, list): return value
    kind, content = value[0], value[1]
    if kind == "int": return int(content, 16)
    if kind == "float": return float.fromhex(content)
    if kind == "complex": return complex(float.fromhex(content), float.fromhex(value[2]))
    if kind == "bytes": return bytes.fromhex(content)
    if kind == "range": return range(*map(unpack, content))
    if kind == "dict": return {unpack(key): unpack(item) for key, item in content}
    if kind == "list": return [unpack(item) for item in content]
    if kind == "tuple": return tuple(map(unpack, content))
    if kind == "set": return set(map(unpack, content))
    if kind == "frozenset": return frozenset(map(unpack, content))
    if kind == "iterator": return iter([unpack(item) for item in content])
    if kind == "fraction":
        from fractions import Fraction
        return Fraction(int(content, 16), int(value[2], 16))
    if kind == "decimal":
        from decimal import Decimal
        return Decimal(content)
    return Opaque(str(content))

def send(stream, message):
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()

def last_line(error):
    try: text = str(error).strip().splitlines()
    except Exception: text = []
    return (type(error).__name__ + (": " + text[-1] if text else ""))[:300]
)py";

/// The program: requests on descriptor 3, replies on 4.
constexpr char program[] = R"py(
def serve():
    requests, replies = os.fdopen(3, "rb"), os.fdopen(4, "wb")
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
        except MemoryError: os._exit(77)
        except BaseException as error: reply = {"error": last_line(error)}
        try: send(replies, reply)
        except MemoryError: os._exit(77)

serve()
)py";

/// The judge: requests on 3, replies on 4, what to judge on 5, the verdict on 6.
constexpr char judge[] = R"py(
class Ended(BaseException): pass
class Raised(Exception): pass

longest = 16 << 20

def judge():
    requests, replies = os.fdopen(3, "wb"), os.fdopen(4, "rb")
    with os.fdopen(5, "rb") as file: job = json.load(file)

    def ask(request):
        try: send(requests, request)
        except BrokenPipeError: raise Ended
        line = replies.readline(longest)
        if not line.endswith(b"\n"):
            if len(line) < longest: raise Ended
            raise Raised("its result is larger than 16 MiB")
        reply = json.loads(line)
        if "error" in reply: raise Raised(reply["error"])
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
    except Ended: return {"verdict": "ended"}
    except Raised as error: return {"verdict": "failed", "detail": str(error)[:300]}
    except AssertionError as error:
        trace, number = error.__traceback__, 0
        while trace:
            if trace.tb_frame.f_code.co_filename == "<test>": number = trace.tb_lineno
            trace = trace.tb_next
        lines = job["test"].split("\n")
        where = lines[number - 1].strip()[:200] if 0 < number <= len(lines) else ""
        return {"verdict": "failed", "detail": "AssertionError: " + where}
    except BaseException as error: return {"verdict": "failed", "detail": last_line(error)}

with os.fdopen(6, "wb") as verdict: send(verdict, judge())
os._exit(0)
)py";

}  // namespace slm::bench::python
