#!/usr/bin/env python3
"""llama-bench's measurements with the llama.cpp of the package xllamacpp, which has a server and no llama-bench. It takes
the options that compare.py passes, and prints the fields that it reads:

    python3 bench/peers/xllamacpp_bench.py -m MODEL.gguf -t 2 -p 5,512 -n 64 -r 3 -o json
"""
import argparse
import json
import statistics


def server(file, threads, context):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = file
    params.n_ctx, params.n_parallel, params.n_gpu_layers = context, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.verbosity = 0
    params.cache_ram_mib = params.n_ctx_checkpoints = 0  # nothing is kept for later requests
    return xllamacpp.Server(params)


def timings(llama, prompt, answer):
    tokens = [i * 7919 % 1000 for i in range(prompt)]
    reply = llama.handle_completions({"prompt": tokens, "n_predict": answer, "cache_prompt": False, "ignore_eos": True, "temperature": 0})
    reply = json.loads(reply) if isinstance(reply, str) else reply
    found = reply["timings"]
    if (found["prompt_n"], found["predicted_n"]) != (prompt, answer):
        raise SystemExit(f"llama.cpp computed {found}, expected {prompt} tokens of a prompt and {answer} of an answer")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True, metavar="FILE", help="the GGUF file")
    parser.add_argument("-t", type=int, required=True, metavar="THREADS")
    parser.add_argument("-p", required=True, metavar="TOKENS", help="lengths of prompts, separated by commas")
    parser.add_argument("-n", type=int, required=True, metavar="TOKENS", help="steps of one token, after one token")
    parser.add_argument("-r", type=int, default=3, metavar="REPEATS")
    parser.add_argument("-o", choices=["json"], default="json")
    arguments = parser.parse_args()
    prompts = [int(count) for count in arguments.p.split(",")]
    llama = server(arguments.m, arguments.t, max(*prompts, arguments.n) + 64)

    def test(prompt, answer, speed):
        speeds = [speed() for _ in range(arguments.r)]
        return {"n_prompt": prompt, "n_gen": answer, "avg_ts": statistics.mean(speeds)}

    timings(llama, max(prompts), 2)  # the first request reads the weights from disk
    tests = [test(count, 0, lambda count=count: timings(llama, count, 1)["prompt_per_second"]) for count in prompts]
    # The time begins after the first token, which belongs to the prompt.
    tests.append(test(0, arguments.n, lambda: 1e3 * arguments.n / timings(llama, 1, arguments.n + 1)["predicted_ms"]))
    print(json.dumps(tests))


if __name__ == "__main__":
    main()
