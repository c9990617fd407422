// slm serve: answers many requests concurrently over HTTP, with OpenAI's API.
#if SLM_HAS_SERVER

#include <chrono>
#include <functional>
#include <iostream>
#include <memory>

#include "api/api.hpp"
#include "api/default_fields.hpp"
#include "api/served_model.hpp"
#include "cli.hpp"
#include "http/addresses.hpp"
#include "http/cors.hpp"
#include "http/server.hpp"
#include "serve_models.hpp"
#include "slm/adapters.hpp"
#include "tools/cli/ranks.hpp"
#include "tools/cli/system.hpp"

namespace cli {

namespace {

struct ServeOptions {
  std::string target;
  ModelsOptions several;
  DraftingOptions drafting;
  ModelOptions models;
  ChatOptions chat;
  slm::EngineOptions engine{.cache_memory = std::size_t{4} << 30};
  serve::HttpOptions http = {};
  serve::ReadingOptions reading;
  std::vector<std::string> names, tags, adapters, origins;
  slm::AdapterStoreOptions store{.host_memory = std::size_t{4} << 30};
  bool update_adapters = false, generation_config = false;
  std::vector<std::string> defaults;
  bool any_name = false, prefills = false;
  std::string key_file, slot_folder;
  bool cors_credentials = false, insecure = false, no_page = false, no_slots = false, no_metrics = false, json = false;
  double drain_delay = 0, drain_timeout = 30;
};

/// One key per line.
std::vector<std::string> read_keys(const std::string& path) {
  std::vector<std::string> keys;
  const std::string file = read_text(path);
  for (std::string_view rest = file; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) keys.emplace_back(line);
  }
  if (keys.empty()) {
    throw slm::Error("serve.no-keys", slm::text("'", path, "': expected at least one key, found none"),
                     "Write one API key per line");
  }
  return keys;
}

void add_counters(serve::MetricsPage& page, const serve::HttpCounters& counters) {
  page.gauge("slm:open_connections", "Open client connections.", static_cast<double>(counters.connections));
  page.gauge("slm:open_streams", "Answers being streamed.", static_cast<double>(counters.streams));
  page.counter("slm:slow_reader_cancels", "Connections closed because their client stopped reading.",
               static_cast<double>(counters.slow_readers));
  page.counter("slm:http_refused", "Requests and connections refused before routing.",
               static_cast<double>(counters.refused));
}

/// Adapters named on the command line are loaded now and pinned.
std::shared_ptr<slm::AdapterStore> make_store(const ServeOptions& options, const std::vector<std::string>& taken,
                                              const slm::AnyModel& target) {
  slm::AdapterStoreOptions store_options = options.store;
  store_options.taken = taken;
  auto store = std::make_shared<slm::AdapterStore>(target, std::move(store_options));
  for (const std::string& named : options.adapters) {
    const std::size_t sign = std::min(named.find('='), named.size());
    const std::filesystem::path folder = slm::path_of(std::string_view(named).substr(std::min(sign + 1, named.size())));
    store->load(named.substr(0, sign), folder, {.pinned = true}).wait();
  }
  return store;
}

/// Lets running requests complete, unless a second signal arrives.
void shut_down(serve::HttpServer& server, serve::Api& api, const ServeOptions& options, const EndSignals& signals) {
  using std::chrono::milliseconds;
  api.drain();
  constexpr milliseconds tick{20};
  const auto in_milliseconds = [](double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1e3)); };
  if (signals.comes_within(in_milliseconds(options.drain_delay))) return;
  for (milliseconds waited{0}; waited < in_milliseconds(options.drain_timeout); waited += tick) {
    if (server.drain(tick)) return;
    if (signals.comes_within(milliseconds(0))) return;
  }
  api.cancel();
  server.drain(std::chrono::seconds(2));  // until clients have read the end of their answers
}

/// Reports where the server listens and what it serves.
void announce(const OrderedJson& started, const std::string& address, int port, bool json) {
  if (json) {
    OrderedJson line{{"address", address}, {"port", port}};
    line.update(started);
    return print_json(line);
  }
  if (started.contains("chat_notice") && !started["chat_notice"].is_null()) {
    std::cerr << started["chat_notice"].get_ref<const std::string&>() << '\n';
  }
  const std::string models =
      started.contains("models") ? slm::text(started["models"].size(), " models") : started["model"].get<std::string>();
  print(slm::text("slm serves ", models, " at ", address, "\n"));
  if (started.contains("sampling")) {
    print(slm::text("Default sampling of requests: ", started["sampling"].dump(), "\n"));
  }
}

constexpr const char* load_ended = "serve.load-ended";

/// Adapters are those of the command line.
/// is_over: whether the server is to end, and the load with it.
serve::LoadedModel load_model(const ServeOptions& options, const std::string& target, const std::string& draft,
                              const std::vector<std::string>& names, const std::function<bool()>& is_over) {
  ModelOptions models = options.models;
  if (rank_count() == 1) {  // other ranks would wait for this one
    models.check = [&is_over] {
      if (is_over()) throw slm::Error(load_ended, "the server was stopped while a model loaded", "Start it again");
    };
  }
  Loader loader(models);
  const slm::AnyModel model = loader.load(target);
  DraftingOptions drafting = options.drafting;
  drafting.draft = draft;
  slm::Drafter drafter = make_drafter(drafting, loader, model.info(), target);
  serve::ServedModel served = serve::describe_model(target, names, model, options.chat, fingerprint_of(options.models));
  if (!options.several.given()) served.adapters = make_store(options, served.names, model);
  served.any_name = options.any_name;
  served.prefills = options.prefills;
  if (options.generation_config) served.suggested = model.info().sampling;
  return {std::move(served), serve::make_service(std::move(drafter), model, options.engine)};
}

serve::ModelList list_models(const ServeOptions& options) {
  serve::ModelList list = make_model_list(options.several, options.models, options.engine);
  list.any_name = options.any_name;
  list.outline = [&options](const serve::ModelSource& source) {
    return outline_of(source, options.models, options.engine);
  };
  list.load = [&options](const serve::ModelSource& source, const std::function<bool()>& is_over) {
    serve::LoadedModel loaded = load_model(options, source.path, source.draft, {source.name}, is_over);
    if (const std::string& notice = loaded.model.chat_notice; !notice.empty()) {
      std::cerr << slm::text(source.name, ": ", notice, "\n");
    }
    return loaded;
  };
  return list;
}

void run_server(ServeOptions options) {
  if (options.key_file.empty() && !options.insecure && !serve::is_loopback(options.http.host)) {
    throw slm::Error(
        "serve.exposed",
        slm::text("the address ", options.http.host, " is reachable by other machines, but no API keys are required"),
        "Name a file of keys with --api-key-file, or allow access without keys with --insecure");
  }
  serve::ApiOptions limits{.reading = options.reading};
  if (!options.key_file.empty()) limits.keys = read_keys(options.key_file);
  limits.reading.most_choices = options.engine.max_requests;
  limits.most_running = options.engine.max_running;
  limits.most_waiting = options.engine.max_requests;
  limits.reading.defaults = serve::parse_defaults(options.defaults);
  limits.load_adapters = options.update_adapters;
  limits.tags = options.tags;
  limits.page = !options.no_page;
  limits.slots = !options.no_slots;
  limits.metrics = !options.no_metrics;
  limits.slot_folder = slm::path_of(options.slot_folder);
  std::vector<std::string> origins;
  for (const std::string& origin : options.origins) origins.push_back(serve::parse_origin(origin));
  options.http.cors = serve::CorsPolicy(std::move(origins), options.cors_credentials);
  options.http.error_body = [](int status, std::string_view message) {
    return slm::json_text(serve::error_json({status, "serve.bad-http", std::string{message}}));
  };
  const EndSignals signals;         // before any thread starts
  std::unique_ptr<serve::Api> api;  // outlives the server; an address in use is reported before models load
  serve::HttpServer server(options.http, [&api](const serve::HttpRequest& request, std::function<void()> wake) {
    return api->handle(request, wake);
  });
  limits.add_metrics = [&server](serve::MetricsPage& page) { add_counters(page, server.counters()); };

  options.engine.speculation.overlap = options.models.draft_is_apart();
  OrderedJson started;
  if (options.several.given()) {
    serve::ModelList list = list_models(options);
    started = {{"model", list.sources.front().name}, {"models", OrderedJson::array()}};
    for (const serve::ModelSource& source : list.sources) started["models"].push_back(source.name);
    api = std::make_unique<serve::Api>(std::move(list), std::move(limits));
  } else {
    serve::LoadedModel only = load_model(options, options.target, options.drafting.draft, options.names,
                                         [&signals] { return signals.comes_within(std::chrono::milliseconds(0)); });
    const serve::ServedModel& model = only.model;
    const std::string& notice = model.chat_notice;
    started = {{"model", model.names.front()},
               {"chat_template", model.chat ? OrderedJson(model.chat->form.name()) : OrderedJson()},
               {"chat_notice", notice.empty() ? OrderedJson() : OrderedJson(notice)}};
    if (options.generation_config) started["sampling"] = json_of(model.suggested);
    api = std::make_unique<serve::Api>(std::move(only), std::move(limits));
  }
  server.start();
  const std::string host = serve::without_brackets(options.http.host.substr(0, options.http.host.find(',')));
  const std::string address =
      slm::text("http://", host.find(':') == host.npos ? host : "[" + host + "]", ":", server.port());
  announce(started, address, server.port(), options.json);
  signals.wait();
  shut_down(server, *api, options, signals);
}

}  // namespace

void add_serve(CLI::App& program) {
  auto options = std::make_shared<ServeOptions>();
  options->http.port = 8080;
  CLI::App& command = *program.add_subcommand("serve", "Answer requests over HTTP with OpenAI's API");
  auto& which = *command.add_option_group("models");
  which.require_option(1);
  which.add_option("--target", options->target, "target model (folder or GGUF file)");
  auto* named = which
                    .add_option("--model", options->several.named,
                                "a model of several, loaded when a request names it; with a draft: "
                                "NAME=PATH,draft=PATH; may be repeated")
                    ->type_name("NAME=PATH")
                    ->take_all();
  auto* models = which.add_option("--models", options->several.folder,
                                  "folder of models: serve each sub-folder and GGUF file by its name, loaded when a "
                                  "request names it");
  const auto of_target = [=](CLI::Option* option) { return option->excludes(named)->excludes(models); };
  command
      .add_option("--model-memory", options->several.memory,
                  "memory of all models with their KV caches; idle models are unloaded, the least recently used first; "
                  "0: the free memory at the start")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("0")
      ->type_name("SIZE");
  auto* draft = of_target(add_drafter_options(command, options->drafting));
  add_draft_options(command, options->models, *draft);
  std::vector<const CLI::Option*> of_drafts;  // which the models of --model may have, too
  for (const char* name : {"--draft-head", "--draft-bits", "--draft-threads"}) {
    CLI::Option* option = command.get_option(name);
    option->remove_needs(draft);
    of_drafts.push_back(option);
  }
  command
      .add_option_function<std::string>(
          "--draft-length",
          [options](const std::string& length) {
            options->engine.speculation.draft_length = slm::draft_length::parse(length);
          },
          "tokens to draft per round, or: adaptive, heuristic, confidence")
      ->default_str("adaptive");
  command
      .add_option("--host", options->http.host,
                  "address to listen on, or a name: all its addresses; several with commas")
      ->capture_default_str();
  command.add_option("--port", options->http.port, "port to listen on; 0: any free port")->capture_default_str();
  of_target(command.add_option(
      "--served-model-name", options->names,
      "name of the model for clients; further names are aliases; default: the name of its folder or file"));
  of_target(command.add_option("--tag", options->tags, "tag of the model in /models; may be repeated"))->take_all();
  command.add_flag("--any-model-name", options->any_name, "answer requests for unknown models with the first model");
  command
      .add_option("--default", options->defaults,
                  "value of a field that a request leaves out, such as temperature=0; may be repeated")
      ->type_name("FIELD=VALUE")
      ->take_all();
  of_target(command.add_option("--adapter", options->adapters,
                               "serve the target with this adapter as another model; may be repeated"))
      ->type_name("NAME=DIR")
      ->check([](const std::string& pair) { return pair.find('=') < pair.size() - 1 ? "" : "expected NAME=DIR"; })
      ->take_all();
  auto* folder = of_target(command.add_option_function<std::string>(
      "--adapters", [options](const std::string& place) { options->store.folder = slm::path_of(place); },
      "folder of adapters: serve each sub-folder as a model with its name, loaded on request"));
  command
      .add_option("--adapter-memory", options->store.host_memory,
                  "host memory for adapters; the least recently used are evicted; 0: a quarter of the free memory")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("4GiB")
      ->type_name("SIZE");
  command
      .add_option("--adapter-device-memory", options->store.device_memory,
                  "device memory for adapters, if the device has its own; 0: no limit")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("0")
      ->type_name("SIZE");
  command
      .add_option("--adapter-disk", options->store.disk_memory,
                  "total weights of adapters served from disk; 0: no limit")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("0")
      ->type_name("SIZE");
  command
      .add_flag("--allow-adapter-updates", options->update_adapters,
                "let clients load adapters of that folder under other names, and unload them")
      ->needs(folder);
  command.add_option("--api-key-file", options->key_file, "file of API keys, one per line; clients need one of them");
  command
      .add_option(
          "--cors-origin", options->origins,
          "let web pages of this origin, such as https://example.org, read answers; may be repeated; localhost: all "
          "origins of this machine; *: all origins")
      ->type_name("ORIGIN")
      ->check([](const std::string& origin) {
        return serve::parse_origin(origin).empty() ? "expected SCHEME://HOST, SCHEME://HOST:PORT, localhost or *" : "";
      })
      ->take_all();
  command
      .add_flag("--cors-credentials", options->cors_credentials,
                "let these pages send the browser's credentials, such as cookies that a proxy asks for")
      ->needs("--cors-origin");
  command.add_flag("--insecure", options->insecure, "listen on a public address without keys");
  command.add_option("--max-requests", options->engine.max_requests, "maximum number of queued and running requests")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command.add_option("--max-running", options->engine.max_running, "maximum number of running requests")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option("--prompt-rows", options->engine.prompt_rows,
                  "maximum number of prompt tokens per step; a small number delays other requests less")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option("--max-connections", options->http.limits.connections,
                  "maximum number of connections; others get 503")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      .add_option("--cache-memory", options->engine.cache_memory,
                  "KV cache memory; 0: half of the free memory, or all free GPU memory")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("4GiB")
      ->type_name("SIZE");
  command
      .add_option("--slot-save-path", options->slot_folder,
                  "folder of saved slots: clients may save, restore and erase the texts of `id_slot`")
      ->check(CLI::ExistingDirectory);
  command.add_option("--io-threads", options->http.io_threads, "threads for connections")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_flag("--no-page", options->no_page, "answer / with 404 instead of the web page");
  command.add_flag("--no-slots", options->no_slots, "answer /slots with 501");
  command.add_flag("--no-metrics", options->no_metrics, "answer /metrics with 501");
  command.add_flag("--priorities", options->reading.priorities, "let clients set the priority of requests");
  command.add_flag("--strict-fields", options->reading.strict_fields,
                   "refuse unknown request fields; otherwise the header X-Slm-Ignored-Fields lists them");
  command.add_flag("--generation-config", options->generation_config,
                   "take temperature, top_k, top_p, min_p and repetition_penalty from the model's "
                   "generation_config.json unless a request sets them");
  command.add_option("--drain-delay", options->drain_delay, "seconds from SIGTERM until new requests are refused")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("--drain-timeout", options->drain_timeout, "seconds for running requests to complete after that")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  add_chat_options(command, options->chat);
  command.add_flag("--tools-as-text", options->chat.tools_as_text,
                   "let chats have tools although the chat template shows none: as texts of messages");
  command.add_flag("--prefill-assistant", options->prefills,
                   "continue the last message of a chat if it is the assistant's, as llama.cpp does");
  add_model_options(command, options->models);
  command.add_flag(
      "--json", options->json,
      "print one JSON object: address, port, model, chat_template, chat_notice; with several models: models");
  command.callback([options, of_drafts, draft, named] {
    for (const CLI::Option* option : of_drafts) {
      const bool has_draft = draft->count() > 0 || named->count() > 0;
      if (option->count() > 0 && !has_draft) throw CLI::RequiresError(option->get_name(), draft->get_name());
    }
    try {
      run_server(*options);
    } catch (const slm::Error& error) {
      if (error.id() != load_ended) throw;
    }
  });
}

}  // namespace cli

#endif
