// slm template: a conversation as the prompt that a chat template makes of it.
#include <memory>
#include <optional>

#include "cli.hpp"

namespace cli {

namespace {

struct TemplateOptions {
  std::string file, model;
  std::string messages, tools, kwargs, context;
  std::optional<std::string> bos, eos;
  std::string date;
  bool no_generation_prompt = false, continue_final_message = false, ids = false;
};

slm::Error wrong_usage(std::string_view what, std::string_view advice) {
  return slm::Error("cli.template-usage", what, advice);
}

slm::ChatTemplate template_of(const TemplateOptions& options) {
  if (options.model.empty() && options.file.empty()) {
    throw wrong_usage("expected --template or --model, found neither", "Name a template or a model");
  }
  slm::ChatTemplate form = options.model.empty() ? slm::ChatTemplate::parse(read_file(options.file), {}, options.file)
                                                 : slm::ChatTemplate::from(slm::path_of(options.model), options.file);
  if (options.bos) form = form.with_token("bos_token", *options.bos);
  if (options.eos) form = form.with_token("eos_token", *options.eos);
  return form;
}

void render(const TemplateOptions& options) {
  if (options.messages.empty() == options.context.empty()) {
    throw wrong_usage("expected one of --messages and --context", "Give the conversation, or the template's variables");
  }
  if (options.ids && (options.model.empty() || !options.context.empty())) {
    throw wrong_usage("--ids needs --model and --messages", "Name the model whose tokens are wanted");
  }
  const slm::ChatTemplate form = template_of(options);
  std::optional<slm::jinja::Date> date;
  if (!options.date.empty()) date = slm::jinja::Date::parse(options.date);
  if (!options.context.empty()) {
    const slm::jinja::Template any(form.source(), form.name());
    return print(any.render(read_text(options.context), date).text);
  }
  const std::string messages = read_text(options.messages);
  const std::string tools = options.tools.empty() ? "" : read_text(options.tools);
  const slm::ChatOptions chat{.tools = tools,
                              .kwargs = options.kwargs,
                              .add_generation_prompt = !options.no_generation_prompt,
                              .continue_final_message = options.continue_final_message,
                              .as_given = true,
                              .date = date};
  const slm::jinja::Rendered rendered = form.render(messages, chat);
  if (!options.ids) return print(rendered.text);
  print_json(form.encode(slm::Tokenizer::from(slm::path_of(options.model)), rendered));
}

}  // namespace

void add_template(CLI::App& program) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App& command = *program.add_subcommand("template", "Messages to the prompt that a chat template makes of them");
  command.add_option("--template", options->file,
                     "file with a chat template; with --model also a name of one of the model's, or of slm's own");
  command.add_option("--model", options->model, "folder or GGUF file of the model whose template and tokens are used");
  command.add_option("--messages", options->messages, "file with a JSON list of messages");
  command.add_option("--tools", options->tools, "file with a JSON list of tools");
  command.add_option("--kwargs", options->kwargs, "more variables of the template, a JSON object");
  command.add_option("--context", options->context,
                     "file with all variables of the template, a JSON object, in place of --messages");
  command.add_option("--bos-token", options->bos, "the variable bos_token; default: the model's");
  command.add_option("--eos-token", options->eos, "the variable eos_token; default: the model's");
  command.add_flag("--no-generation-prompt", options->no_generation_prompt, "do not ask for an answer");
  command.add_flag("--continue-final-message", options->continue_final_message, "end with the last message's text");
  command.add_option("--date", options->date, "date of strftime_now, YYYY-MM-DD[THH:MM:SS]; default: now");
  command.add_flag("--ids", options->ids, "print a JSON list of token ids; needs --model");
  command.callback([options] { render(*options); });
}

}  // namespace cli
