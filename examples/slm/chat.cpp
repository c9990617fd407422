// slm chat: a conversation on the terminal, or with a file of questions, one per line.
#include <iostream>
#include <memory>

#include "cli.hpp"
#include "tools/cli/interrupts.hpp"
#include "tools/cli/system.hpp"

namespace cli {

namespace {

/// Reads standard input line by line, and detects Ctrl-C meanwhile.
class LineReader {
 public:
  enum class Event { line, end, interrupt };
  static constexpr std::size_t longest = std::size_t{1} << 24;  // bytes

  Event next(const InterruptGuard& guard, std::string& line) {
    for (;;) {
      if (const std::size_t end = held_.find('\n', searched_); end != held_.npos) {
        line = held_.substr(0, end);
        held_.erase(0, end + 1);
        searched_ = 0;
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return Event::line;
      }
      searched_ = held_.size();
      if (ended_) {
        line = std::move(held_);
        held_.clear();
        searched_ = 0;
        return line.empty() ? Event::end : Event::line;
      }
      if (held_.size() > longest) {
        throw slm::Error("cli.long-line", slm::text("a line of the input has more than ", longest, " bytes"),
                         "Write one message per line");
      }
      const InterruptGuard::Input input = guard.read(held_);
      if (input == InterruptGuard::Input::interrupt) return Event::interrupt;
      ended_ = input == InterruptGuard::Input::end;
    }
  }

 private:
  std::string held_;
  std::size_t searched_ = 0;  // bytes of held_ without a newline
  bool ended_ = false;
};

struct ConversationOptions {
  DecodingOptions decoding;
  ChatOptions chat;
  std::string system;
  bool json = false;
};

class Conversation {
 public:
  Conversation(const ConversationOptions& options, const slm::ChatTemplate& form)
      : options_(options),
        generator_(make_generator(options.decoding)),
        tokenizer_(slm::Tokenizer::from(slm::path_of(options.decoding.target))),
        format_(make_chat_format(form, options.chat, tokenizer_)),
        sampling_(generator_.sampling),
        stops_(options.decoding.stops) {
    sampling_.stop_tokens = format_.stop_tokens(generator_.target.vocab);
    stops_.insert(stops_.end(), format_.stops.strings.begin(), format_.stops.strings.end());
    if (!options.system.empty()) messages_.push_back({"system", options.system});
  }

  /// Answers a question. If it throws, the conversation is unchanged.
  void ask(const std::string& question) {
    const std::vector<slm::ChatMessage> before = messages_;
    messages_.push_back({"user", question});
    try {
      answer();
    } catch (...) {
      messages_ = before;
      throw;
    }
  }

 private:
  void answer() {
    int forgotten = 0;
    const std::vector<slm::Token> prompt = prompt_that_fits(forgotten);
    if (forgotten > 0 && !options_.json) {
      std::cerr << "(the context of " << generator_.target.context << " tokens is full: the oldest " << forgotten
                << (forgotten == 1 ? " turn is" : " turns are") << " forgotten)\n";
    }
    std::string said;
    std::vector<slm::Token> ids;
    bool begun = false;
    const auto write = [&](std::string_view piece) {
      piece = format_.spoken(piece, begun);
      said += piece;
      if (!options_.json) print(piece);
    };
    Collector sink{slm::TextStream(tokenizer_, prompt, write, stops_), ids, &interrupts};
    const slm::Stats stats =
        generator_.generate({.prompt = prompt, .sampling = sampling_, .adapter = generator_.adapter}, sink);
    messages_.push_back({"assistant", said});
    if (!options_.json) return print("\n");
    print_json({{"text", said},
                {"ids", ids},
                {"prompt_ids", prompt},
                {"reused_tokens", stats.reused_tokens},
                {"forgotten_turns", forgotten},
                {"interrupted", stats.finish_reason == slm::FinishReason::sink && !sink.stream.stopped()},
                {"statistics", statistics_of(stats, sink.stream)}});
  }

  /// Removes the oldest turns (question and answer) until an answer fits: max-new-tokens, or a quarter of the context
  /// if that is less. The system message stays.
  std::vector<slm::Token> prompt_that_fits(int& forgotten) {
    const int context = generator_.target.context;
    const int answer_tokens = std::min(sampling_.max_new_tokens, context / 4);
    const std::size_t oldest = messages_.front().role == "system" ? 1 : 0;
    for (;; ++forgotten) {
      std::vector<slm::Token> ids = format_.encode(tokenizer_, messages_);
      const bool last = messages_.size() == oldest + 1;
      if (ids.size() + static_cast<std::size_t>(answer_tokens) <= static_cast<std::size_t>(context)) return ids;
      if (last && ids.size() < static_cast<std::size_t>(context)) return ids;
      if (last) {
        throw slm::Error(
            "cli.long-message",
            slm::text("the message has ", ids.size(), " tokens, expected at most the model's context of ", context),
            "Shorten the message");
      }
      const auto first = messages_.begin() + static_cast<std::ptrdiff_t>(oldest);
      messages_.erase(first, first + 2);
    }
  }

  const ConversationOptions& options_;
  Generator generator_;
  slm::Tokenizer tokenizer_;
  ChatFormat format_;
  slm::Sampling sampling_;
  std::vector<std::string> stops_;
  std::vector<slm::ChatMessage> messages_;
};

void chat(const ConversationOptions& options) {
  const bool interactive = is_terminal(stdin);
  const bool prompts = interactive && is_terminal(stdout) && !options.json;
  const slm::ChatTemplate form = choose_template(options.chat, options.decoding.target);
  if (form.is_guessed()) std::cerr << guess_notice(form) << '\n';
  Conversation conversation(options, form);
  const InterruptGuard guard;
  LineReader reader;
  if (interactive) {
    std::cerr << "Ctrl-C stops an answer; /exit, Ctrl-D or a second Ctrl-C end the conversation.\n";
  }
  int pressed = 0;  // Ctrl-C since the last question
  for (std::string line;;) {
    if (prompts) print("> ");
    const LineReader::Event event = reader.next(guard, line);
    if (event == LineReader::Event::interrupt) {
      interrupts = 0;
      if (++pressed > 1) break;
      std::cerr << (interactive ? "\n" : "") << "(Ctrl-C once more, Ctrl-D or /exit to leave)\n";
      continue;
    }
    if (event == LineReader::Event::end || line == "/exit") break;
    if (line.find_first_not_of(" \t") == line.npos) continue;
    interrupts = 0;
    pressed = 0;
    try {
      conversation.ask(line);
    } catch (const slm::Error& error) {
      if (!interactive || error.id() == "cli.output-failed") throw;
      std::cerr << "slm: " << error.what() << '\n';
    }
    if (interrupts != 0) {
      guard.drain();
      interrupts = 0;
      pressed = 1;
      std::cerr << "(stopped)\n";
    }
  }
  if (prompts) print("\n");
}

}  // namespace

void add_chat_options(CLI::App& command, ChatOptions& options) {
  std::string names;
  for (const std::string& name : slm::ChatTemplate::names()) names += (names.empty() ? "" : ", ") + name;
  command.add_option("--chat-template,--template", options.template_choice,
                     "chat template: a file, a name of one of the model's, or one of " + names +
                         "; default: the model's own, else a guess by its name");
  command.add_option("--chat-template-kwargs", options.kwargs, "variables for the chat template, a JSON object");
  command.add_flag("--no-thinking", options.no_thinking, "set the template's variable enable_thinking to false");
}

void add_chat(CLI::App& program) {
  auto options = std::make_shared<ConversationOptions>();
  options->decoding.sampling.max_new_tokens = 1024;
  CLI::App& command = *program.add_subcommand("chat", "Chat with a model: one line per message; answers on stdout");
  add_decoding_options(command, options->decoding);
  command.add_option("--system", options->system, "system message of the conversation");
  add_chat_options(command, options->chat);
  command.add_flag("--json", options->json, "print one JSON object per answer");
  command.footer("When the context is full, the oldest turns are removed; the system message stays.");
  command.callback([options] { chat(*options); });
}

}  // namespace cli
