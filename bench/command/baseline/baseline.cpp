#include "bench/command/baseline/baseline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "slm/core/error.hpp"
#include "tools/cli/data_path.hpp"

namespace slm::bench {

namespace {

struct Known {
  std::string_view name, script, packages;
};

constexpr std::array known = {
    Known{"transformers", "peer_transformers.py", "torch transformers"},
    Known{"llama.cpp", "peer_llama_cpp.py", "llama-cpp-python gguf numpy"},
};

const Known* find_known(const std::string& name) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const Known& one) { return one.name == name; });
  return found == known.end() ? nullptr : &*found;
}

std::filesystem::path script_of(const std::string& name) {
  if (const Known* one = find_known(name)) return std::filesystem::path{cli::data_path("bench/peers")} / one->script;
  if (name.ends_with(".py") && std::filesystem::is_regular_file(name)) return std::filesystem::absolute(name);
  throw Error("baseline.unknown",
              text("expected transformers, llama.cpp or a .py script as the engine, found '", name, "'"),
              "Use transformers, llama.cpp, or the path of a .py script with the protocol of bench/peers/peer.py");
}

std::string log_name(const std::string& name) {
  return "baseline-" + std::filesystem::path{name}.filename().string() + ".log";
}

/// Text from an engine, shortened and without control characters.
std::string harmless(const std::string& found, std::size_t most = 200) {
  std::string kept = found.substr(0, most);
  for (char& c : kept) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '|') c = ' ';
  }
  return kept;
}

Json description_of(const BaselineTask& task) {
  return {{"kind", task.draft_length ? "speculative" : "plain"},
          {"ids", task.prompt},
          {"max_new_tokens", task.sampling.max_new_tokens},
          {"end_tokens", task.end_tokens},
          {"temperature", task.sampling.temperature},
          {"top_k", task.sampling.top_k},
          {"top_p", task.sampling.top_p},
          {"seed", task.sampling.seed},
          {"draft_length", task.draft_length ? Json(*task.draft_length) : Json()}};
}

}  // namespace

Baseline::Scratch::Scratch(std::filesystem::path at) : path(std::move(at)) {
  std::error_code failure;
  std::filesystem::remove_all(path, failure);  // left by a run that was killed
  std::filesystem::create_directories(path, failure);
  if (!std::filesystem::is_directory(path)) {
    throw Error("io.unwritable", text("cannot create '", path.string(), "': ", failure.message()),
                "Check the folder, its permissions and the free space");
  }
}

Baseline::Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

Baseline::Baseline(const std::string& name, BaselineSetup setup)
    : setup_(std::move(setup)),
      name_(name),
      scratch_(setup_.folder / (log_name(name) + ".scratch")),
      child_({setup_.python, script_of(name).string()},
             {text("OMP_NUM_THREADS=", setup_.threads), "HF_HUB_OFFLINE=1", "TOKENIZERS_PARALLELISM=false",
              "PYTHONDONTWRITEBYTECODE=1"},
             setup_.folder / log_name(name)) {
  const Known* one = find_known(name);
  remedy_ = one == nullptr ? text("See '", name, "'")
                           : text("It needs `", setup_.python, " -m pip install ", one->packages,
                                  "`; --python selects another interpreter");
  meet();
}

void Baseline::meet() {
  Json request = {{"target", std::filesystem::absolute(setup_.target.folder).string()},
                  {"draft", nullptr},
                  {"threads", setup_.threads},
                  {"context", setup_.context},
                  {"scratch", std::filesystem::absolute(scratch_.path).string()}};
  if (setup_.draft) request["draft"] = std::filesystem::absolute(setup_.draft->folder).string();
  const Json answer = ask(request);

  const auto string = [&](const Json& object, const char* field) {
    const auto found = object.find(field);
    if (found == object.end() || !found->is_string()) throw bad_answer(text("whose '", field, "' is not a string"));
    return found->get<std::string>();
  };
  engine_.name = harmless(string(answer, "engine"));
  if (engine_.name.empty() || engine_.name == "slm") throw bad_answer("without an engine name, or with the name slm");
  engine_.version = harmless(string(answer, "version"));
  engine_.dtype = harmless(string(answer, "dtype"));
  if (answer.contains("speculation") && !answer["speculation"].is_null()) {
    engine_.speculation = harmless(string(answer, "speculation"));
  }
  if (const auto notes = answer.find("notes"); notes != answer.end()) {
    if (!notes->is_array() || notes->size() > 8) throw bad_answer("whose 'notes' are not a list of at most 8");
    for (const Json& note : *notes) {
      if (!note.is_string()) throw bad_answer("with a note that is not a string");
      engine_.notes.push_back(harmless(note.get<std::string>()));
    }
  }
  const auto threads = answer.find("threads");
  if (threads == answer.end() || !is_index(*threads, 1 << 20)) throw bad_answer("whose 'threads' is not a count");
  engine_.threads = threads->get<int>();
  if (engine_.threads != setup_.threads) {
    throw Error("baseline.other-threads",
                text(name_, " computes with ", engine_.threads, " threads, slm with ", setup_.threads),
                "Set --threads to a number that both engines support");
  }

  const auto weights = answer.find("weights");
  if (weights == answer.end() || !weights->is_object()) throw bad_answer("without digests of its weights");
  const auto compare = [&](const char* kind, const MeasuredModel& model) {
    if (const std::string found = string(*weights, kind); found != model.digest) {
      throw Error("baseline.other-weights",
                  text(name_, " loaded other weights than slm for the ", kind, " '", model.folder.string(),
                       "': ", harmless(found), " against ", model.digest),
                  "Use the same unquantized folder for both engines");
    }
  };
  compare("target", setup_.target);
  if (setup_.draft && engine_.speculation) compare("draft", *setup_.draft);
}

BaselineAnswer Baseline::run(const BaselineTask& task) {
  const Json found = ask(description_of(task));
  BaselineAnswer answer;
  const auto ids = found.find("new_ids");
  const auto most = static_cast<std::size_t>(task.sampling.max_new_tokens);
  if (ids == found.end() || !ids->is_array() || ids->empty() || ids->size() > most) {
    throw bad_answer(text("whose 'new_ids' is not a list of 1 to ", most, " tokens"));
  }
  for (const Json& id : *ids) {
    if (!is_index(id, static_cast<std::uint64_t>(setup_.target.vocab))) {
      throw bad_answer("with a token outside the vocabulary");
    }
    answer.new_ids.push_back(id.get<Token>());
  }

  const auto seconds = found.find("seconds");
  const auto time = [&](const char* field) {
    const Json value = seconds != found.end() && seconds->is_object() ? seconds->value(field, Json()) : Json();
    const double read = value.is_number() ? value.get<double>() : -1;
    if (!std::isfinite(read) || read < 0)
      throw bad_answer(text("whose 'seconds.", field, "' is not a duration in seconds"));
    return read;
  };
  answer.total = time("total");
  answer.prompt = time("prompt");
  if (answer.total <= 0 || answer.prompt > answer.total) throw bad_answer("whose prompt took longer than the total");

  if (task.draft_length) {
    for (const auto& [field, place] :
         {std::pair{"drafted", &BaselineAnswer::drafted}, std::pair{"accepted", &BaselineAnswer::accepted},
          std::pair{"rounds", &BaselineAnswer::rounds}}) {
      const auto count = found.find(field);
      if (count == found.end() || !is_index(*count, 1 << 30))
        throw bad_answer(text("whose '", field, "' is not a count"));
      answer.*place = count->get<std::int64_t>();
    }
    // A round yields its accepted draft tokens and one more token.
    const auto emitted = static_cast<std::int64_t>(answer.new_ids.size());
    if (answer.accepted > answer.drafted || emitted > answer.accepted + answer.rounds) {
      throw bad_answer(text("with ", emitted, " tokens of ", answer.rounds, " rounds that accepted ", answer.accepted,
                            " of ", answer.drafted));
    }
  }
  return answer;
}

Json Baseline::ask(const Json& request) {
  const std::string line = child_.ask(json_text(request), setup_.seconds);
  Json answer;
  try {
    answer = parse_json_object(line, name_);
  } catch (const Error&) {
    throw bad_answer(text("that is not a JSON object: ", harmless(line, 60)));
  }
  if (const auto error = answer.find("error"); error != answer.end()) {
    const std::string reason = error->is_string() ? harmless(error->get<std::string>(), 400) : "no reason given";
    throw Error("baseline.refused", text(name_, " cannot run this comparison: ", reason), remedy_);
  }
  return answer;
}

Error Baseline::bad_answer(const std::string& what) const {
  return Error("baseline.bad-answer", text(name_, " returned an answer ", what),
               text("Read its log '", (setup_.folder / log_name(name_)).string(), "'"));
}

std::optional<std::size_t> first_differing_token(const std::vector<Token>& one, const std::vector<Token>& other) {
  const auto [a, b] = std::mismatch(one.begin(), one.end(), other.begin(), other.end());
  if (a == one.end() && b == other.end()) return std::nullopt;
  return static_cast<std::size_t>(a - one.begin());
}

}  // namespace slm::bench
