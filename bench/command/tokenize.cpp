// slm bench tokenize: how fast texts become ids, beside Hugging Face's tokenizers where that is wanted.
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "bench/command/child.hpp"
#include "bench/command/command.hpp"
#include "bench/samples.hpp"
#include "slm/core/error.hpp"
#include "slm/io/json.hpp"
#include "slm/io/mapped_file.hpp"
#include "slm/text/tokenizer.hpp"
#include "slm/text/utf8.hpp"
#include "tools/cli/data_path.hpp"
#include "tools/cli/output.hpp"

namespace slm::bench {

namespace {

struct TokenizeCommand {
  std::string model, text, python = "python3";
  std::size_t bytes = 1 << 20;
  int rounds = 15;
  bool tokenizers = false, json = false;
};

/// Hugging Face's library on one thread, in a child process.
class TokenizersPeer {
 public:
  TokenizersPeer(const TokenizeCommand& command, const std::filesystem::path& tokenizer, std::size_t bytes)
      : log_(std::filesystem::temp_directory_path() / text("slm-tokenizers-", ::getpid(), ".log")),
        child_({command.python, cli::data_path("bench/peers") + "/peer_tokenizers.py"},
               {"TOKENIZERS_PARALLELISM=false", "RAYON_NUM_THREADS=1", "PYTHONDONTWRITEBYTECODE=1"}, log_) {
    const Json first = ask({{"tokenizer", std::filesystem::absolute(tokenizer).string()},
                            {"text", std::filesystem::absolute(command.text).string()},
                            {"bytes", bytes}});
    version = first.value("version", "");
    ids = first.value("ids", std::vector<Token>{});
  }

  ~TokenizersPeer() {
    std::error_code ignored;
    std::filesystem::remove(log_, ignored);
  }

  double encode() { return ask(Json::object()).value("seconds", 0.0); }

  std::string version;
  std::vector<Token> ids;

 private:
  Json ask(const Json& request) {
    const Json answer = parse_json(child_.ask(request.dump(), 600), "the answer of peer_tokenizers.py");
    if (!answer.contains("error")) return answer;
    throw Error("baseline.refused", text("tokenizers: ", quote_json(answer.at("error"))),
                "It needs `pip install tokenizers` and the model's tokenizer.json; --python names another interpreter");
  }

  std::filesystem::path log_;
  Child child_;
};

void tokenize(const TokenizeCommand& command) {
  const Tokenizer tokenizer = Tokenizer::from(command.model);
  const MappedFile file(command.text);
  std::string_view input = file.text().substr(0, command.bytes);
  input = input.substr(0, utf8::valid_prefix(input));
  const std::vector<Token> ids = tokenizer.encode(input, false);
  if (ids.empty()) {
    throw Error("bench.no-text", text("'", command.text, "' begins with no text in UTF-8"),
                "Name a text file with --text");
  }
  std::optional<TokenizersPeer> peer;
  if (command.tokenizers) {
    std::filesystem::path json = command.model;
    if (std::filesystem::is_directory(json)) json /= "tokenizer.json";
    peer.emplace(command, json, input.size());
    if (peer->ids != ids) {
      throw Error("bench.other-tokens", text("slm and tokenizers ", peer->version, " give different ids for this text"),
                  "Report it with the model's name and the text");
    }
  }
  std::vector<double> own, theirs, ratios;
  for (int round = 0; round < command.rounds; ++round) {
    const double begin = seconds();
    tokenizer.encode(input, false);
    own.push_back(seconds() - begin);
    if (!peer) continue;
    theirs.push_back(peer->encode());
    ratios.push_back(theirs.back() / own.back());
  }
  const auto megabytes = [&](const std::vector<double>& times) {
    return static_cast<double>(input.size()) / median(times) / 1e6;
  };
  if (command.json) {
    cli::OrderedJson json{{"bytes", input.size()}, {"tokens", ids.size()}, {"megabytes_per_second", megabytes(own)}};
    if (peer) {
      json["tokenizers"] = {{"version", peer->version}, {"megabytes_per_second", megabytes(theirs)}};
      json["times_as_fast"] = median(ratios);
    }
    return cli::print_json(json);
  }
  char line[160];
  std::snprintf(line, sizeof line, "slm: %.2f MB/s, %zu bytes, %zu tokens, one thread\n", megabytes(own), input.size(),
                ids.size());
  cli::print(line);
  if (!peer) return;
  std::snprintf(line, sizeof line, "tokenizers %s: %.2f MB/s, the same tokens; slm is %.1f times as fast\n",
                peer->version.substr(0, 20).c_str(), megabytes(theirs), median(ratios));
  cli::print(line);
}

}  // namespace

void add_tokenize(CLI::App& bench) {
  auto command = std::make_shared<TokenizeCommand>();
  CLI::App& app = *bench.add_subcommand("tokenize", "Measure how fast a text becomes token ids");
  app.add_option("model", command->model, "folder or GGUF file of the model, or its tokenizer file")->required();
  app.add_option("--text", command->text, "a text file")->required();
  app.add_option("--bytes", command->bytes, "read so much of the text")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  app.add_option("--rounds", command->rounds, "measure so often; the medians count")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_flag("--tokenizers", command->tokenizers,
               "measure Hugging Face's tokenizers in turn, on one thread; it must give the same ids");
  app.add_option("--python", command->python, "the interpreter that has them")->capture_default_str();
  app.add_flag("--json", command->json, "print one JSON object");
  app.callback([command] { tokenize(*command); });
}

}  // namespace slm::bench
