// slm generate --prompts: answers requests from a file, in a batch or one by one, with equal results.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "cli.hpp"
#include "slm/adapters.hpp"
#include "slm/io/json.hpp"

namespace cli {

namespace {

/// A line of the file.
struct RequestLine {
  OrderedJson id;
  slm::Request request;
  std::vector<std::string> stops;
};

/// The answer to a line.
struct Answer {
  std::vector<slm::Token> ids;
  std::string text;
  OrderedJson logprobs = OrderedJson::array();
  std::optional<slm::TextStream> stream;
};

class RequestReader {
 public:
  RequestReader(const DecodingOptions& options, const Generator& generator, const slm::Tokenizer& tokenizer)
      : options_(options), generator_(generator), tokenizer_(tokenizer) {}

  /// where: the file and the line number.
  RequestLine read(std::string_view source, const std::string& where) {
    constexpr const char* advice = "See docs/batches.md for the fields of a line";
    const slm::Json json = slm::parse_json_object(source, where);
    const slm::JsonFields fields(json, where, advice);
    for (const auto& [name, value] : json.items()) {
      static const std::set<std::string> known{"id",    "prompt", "ids",  "max_new_tokens", "temperature", "top_p",
                                               "top_k", "min_p",  "seed", "stop",           "logprobs",    "adapter"};
      if (known.contains(name)) continue;
      throw slm::Error("cli.unknown-field", slm::text("'", where, "' has the field ", slm::quote(name)), advice);
    }
    RequestLine line{.id = json.value("id", slm::Json()), .request = {}, .stops = stops_of(fields)};
    line.request.prompt = prompt_of(fields, where);
    line.request.constraint = generator_.constraint;
    line.request.adapter = fields.has("adapter") ? adapter_of(fields.string("adapter", "")) : generator_.adapter;
    slm::Sampling& sampling = line.request.sampling;
    sampling = generator_.sampling;
    sampling.max_new_tokens = fields.integer("max_new_tokens", 0, 1 << 30, sampling.max_new_tokens);
    sampling.temperature = fields.number("temperature", 0, 1e6, sampling.temperature);
    sampling.top_p = fields.number("top_p", 1e-9, 1, sampling.top_p);
    sampling.top_k = fields.integer("top_k", 0, 1 << 30, sampling.top_k);
    sampling.min_p = fields.number("min_p", 0, 1, sampling.min_p);
    if (fields.has("seed")) {
      const slm::Json& seed = fields.at("seed");
      if (!seed.is_number_unsigned()) throw fields.bad("seed", "an integer of 0..2^64-1", seed);
      sampling.seed = seed.get<std::uint64_t>();
    }
    if (fields.has("logprobs")) {
      line.request.logprobs = {
          .raw = true, .sampled = true, .top = fields.integer("logprobs", 0, generator_.target.vocab)};
    }
    return line;
  }

 private:
  /// Reads each folder once; an empty name is the base model.
  slm::AdapterRef adapter_of(const std::string& folder) {
    if (folder.empty()) return nullptr;
    slm::AdapterRef& adapter = adapters_[folder];
    if (adapter == nullptr) adapter = slm::load_adapter(slm::path_of(folder), generator_.target);
    return adapter;
  }

  std::vector<slm::Token> prompt_of(const slm::JsonFields& fields, const std::string& where) const {
    if (fields.has("prompt") == fields.has("ids")) {
      throw slm::Error("cli.no-prompt", slm::text("'", where, "' needs either prompt or ids"),
                       "Pass the text as prompt, or its tokens as ids");
    }
    if (fields.has("prompt")) return tokenizer_.encode(fields.string("prompt", ""));
    const slm::Json& ids = fields.at("ids");
    std::vector<slm::Token> prompt;
    if (!ids.is_array()) throw fields.bad("ids", "a list of token ids", ids);
    for (const slm::Json& id : ids) {
      if (!slm::is_index(id, static_cast<std::uint64_t>(generator_.target.vocab))) {
        throw fields.bad("ids", slm::text("ids of 0..", generator_.target.vocab - 1).c_str(), id);
      }
      prompt.push_back(id.get<slm::Token>());
    }
    return prompt;
  }

  std::vector<std::string> stops_of(const slm::JsonFields& fields) const {
    if (!fields.has("stop")) return options_.stops;
    const slm::Json& stop = fields.at("stop");
    if (stop.is_string()) return {stop.get<std::string>()};
    const auto is_text = [](const slm::Json& text) { return text.is_string(); };
    if (stop.is_array() && std::all_of(stop.begin(), stop.end(), is_text)) return stop.get<std::vector<std::string>>();
    throw fields.bad("stop", "a string or a list of them", stop);
  }

  const DecodingOptions& options_;
  const Generator& generator_;
  const slm::Tokenizer& tokenizer_;
  std::map<std::string, slm::AdapterRef> adapters_;
};

OrderedJson alternatives(std::span<const slm::TokenLogprob> top) {
  OrderedJson list = OrderedJson::array();
  for (const slm::TokenLogprob& entry : top) list.push_back({{"id", entry.token}, {"logprob", entry.logprob}});
  return list;
}

std::vector<RequestLine> read_requests(const std::string& path, RequestReader reader) {
  const std::string file = read_text(path);
  std::vector<RequestLine> lines;
  std::size_t number = 0;
  for (std::string_view rest = file; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view source = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (source.find_first_not_of(" \t\r") == source.npos) continue;
    lines.push_back(reader.read(source, slm::text(path, ":", number)));
  }
  return lines;
}

}  // namespace

void generate_lines(const DecodingOptions& options, const std::string& path, bool one_by_one) {
  const Generator generator = make_generator(options);
  const auto tokenizer = slm::Tokenizer::from(slm::path_of(options.target));
  const std::vector<RequestLine> lines = read_requests(path, RequestReader(options, generator, tokenizer));
  std::vector<slm::Request> requests;
  std::deque<Answer> answers(lines.size());  // a deque, since streams refer to the elements' texts
  for (std::size_t i = 0; i < lines.size(); ++i) {
    requests.push_back(lines[i].request);
    Answer& answer = answers[i];
    answer.stream.emplace(
        tokenizer, lines[i].request.prompt, [&answer](std::string_view text) { answer.text += text; }, lines[i].stops);
  }
  const auto take = [&](std::size_t i, const slm::GeneratedToken& token) {
    Answer& answer = answers[i];
    answer.ids.push_back(token.token);
    if (requests[i].logprobs.any()) {
      answer.logprobs.push_back({{"id", token.token},
                                 {"logprob", token.logprob},
                                 {"top", alternatives(token.top)},
                                 {"sampled_logprob", token.sampled_logprob},
                                 {"sampled_top", alternatives(token.sampled_top)}});
    }
    return (*answer.stream)(token.token);
  };
  const auto print_answer = [&](std::size_t i, const slm::Stats& stats) {
    Answer& answer = answers[i];
    answer.stream->finish();
    OrderedJson json{{"id", lines[i].id}, {"ids", answer.ids}, {"text", answer.text}};
    if (requests[i].logprobs.any()) json["logprobs"] = std::move(answer.logprobs);
    json["prompt_ids"] = requests[i].prompt;
    json["statistics"] = statistics_of(stats, *answer.stream);
    print_json(json);
  };
  if (one_by_one) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto sink = [&](std::size_t, const slm::GeneratedToken& token) { return take(i, token); };
      print_answer(i, generator.generate_all({&requests[i], 1}, sink).front());
    }
  } else {
    const std::vector<slm::Stats> stats = generator.generate_all(requests, take);
    for (std::size_t i = 0; i < stats.size(); ++i) print_answer(i, stats[i]);
  }
}

}  // namespace cli
