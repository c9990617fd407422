#include "bench/command/sandbox.hpp"

#include <array>

#include "bench/command/child.hpp"
#include "slm/core/error.hpp"
#include "tools/cli/data_path.hpp"

namespace slm::bench {

namespace {

constexpr std::array outcomes = {Outcome::passed, Outcome::failed, Outcome::timed_out, Outcome::out_of_memory,
                                 Outcome::crashed};

Error refusal(const std::string& id, const std::string& detail) {
  if (id == "sandbox.no-bubblewrap") {
    return Error("sandbox.no-bubblewrap", "bwrap is not installed; it builds the sandbox",
                 "Install it (Debian: apt-get install bubblewrap)");
  }
  if (id == "sandbox.unavailable") {
    return Error("sandbox.unavailable", text("bubblewrap cannot build a sandbox on this system: ", detail),
                 "Allow namespaces (in a container: privileged mode or user namespaces), or judge the samples file on "
                 "another machine");
  }
  if (id == "sandbox.no-process") {
    return Error("sandbox.no-process", text("a process in the sandbox did not start: ", detail),
                 "Lower --jobs, or raise the limits on processes and namespaces");
  }
  return Error("sandbox.broken", text("a correct program does not pass in the sandbox: ", detail),
               "Use another Python with --python: one in separate folders that all users can read");
}

}  // namespace

Sandbox::Sandbox(const SandboxOptions& options) : options_(options) {
  try {
    const Json prepared = ask(Json::object());
    walls_ = prepared.at("walls");
    python_version_ = prepared.at("python").get<std::string>();
    layers_ = prepared.at("version").get<std::string>() + ", limits";
  } catch (const Error& error) {
    if (!error.id().starts_with("child.")) throw;
    throw Error("sandbox.no-python", text("'", options_.python, "' is not Python 3.8 or later"),
                "Install python3, or name an interpreter with --python");
  }
  const Verdict verdict =
      run({"def next(x):\n  return x + 1\n", "next", "", "def check(candidate):\n  assert candidate(1) == 2\n"});
  if (verdict.outcome != Outcome::passed) throw refusal("sandbox.broken", verdict.detail);
}

/// The answer of sandbox.py, which enforces the time limits itself. If it hangs, its end terminates all processes in
/// the sandbox.
Json Sandbox::ask(Json request) const {
  constexpr int patience = 30;
  request["limits"] = {{"processor_seconds", options_.processor_seconds},
                       {"seconds", options_.seconds},
                       {"memory", options_.memory_bytes},
                       {"folder", options_.folder_bytes}};
  Child child({options_.python, "-I", "-B", cli::data_path("bench/command/sandbox.py")}, {}, "/dev/null");
  const std::string line =
      child.ask(request.dump(-1, ' ', true, Json::error_handler_t::replace), options_.seconds + patience);
  Json answer = parse_json_object(line, "sandbox.py");
  if (answer.contains("error")) throw refusal(answer.at("error").get<std::string>(), answer.value("detail", ""));
  return answer;
}

Verdict Sandbox::run(const Program& program) const {
  const Json answer = ask({{"walls", walls_},
                           {"job",
                            {{"source", program.source},
                             {"entry_point", program.entry_point},
                             {"helpers", program.helpers},
                             {"test", program.test}}}});
  const std::string word = answer.at("verdict").get<std::string>();
  for (const Outcome outcome : outcomes) {
    if (name_of(outcome) == word) return {outcome, answer.value("detail", ""), answer.at("seconds").get<double>()};
  }
  throw refusal("sandbox.broken", text("its verdict is '", word, "'"));
}

}  // namespace slm::bench
