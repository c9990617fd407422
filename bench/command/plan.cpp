// slm bench plan: estimated cost of a model on several devices, by docs/planning.md. An estimate, not a measurement.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/command/command.hpp"
#include "bench/command/cpu_device.hpp"
#include "bench/command/plan/cost.hpp"
#include "bench/command/plan/models.hpp"
#include "bench/command/tables.hpp"
#include "slm/core/usable_cores.hpp"
#include "tools/cli/output.hpp"
#include "tools/cli/ranks.hpp"

namespace slm::bench {

namespace {

using plan::Layout;
using plan::Load;
using plan::Plan;
using plan::PlanDevice;
using plan::PlannedModel;

struct PlanCommand {
  std::string model, format, cache = "f16";
  std::vector<std::string> devices;
  int ranks = 0, replicas = 0, pipeline = 0, threads = 0, context = 0;
  int sequences = 1, prompt_tokens = 256, answer_tokens = 256;
  double requests_per_day = 0;
  std::optional<double> memory, bandwidth, arithmetic, latency, link, share;  // in the units of the options
  bool json = false;
};

/// A device's figures and their origin.
struct Figures {
  PlanDevice device;
  std::string name, origin;
  std::vector<std::string> given;
  bool messages_measured = false;
};

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const PlanDevice& device : plan::stated_devices) names.emplace_back(device.name);
  names.emplace_back(plan::processor.name);
  return names;
}

Figures measured(int threads) {
  if (threads == 0) threads = usable_cores();
  const cli::RankSpeed speed = cli::measure_ranks(threads);
  Figures figures;
  figures.device = plan::processor;
  figures.device.memory = speed.memory;
  figures.device.bandwidth = speed.bandwidth;
  figures.device.arithmetic = speed.arithmetic;
  figures.messages_measured = speed.latency > 0;
  if (figures.messages_measured) {
    figures.device.latency = speed.latency;
    figures.device.link = speed.link;
  }
  figures.name = cpu_device(threads).name + ", " + counted(threads, "thread");
  figures.origin = figures.messages_measured ? text("measured, ", cli::rank_count(), " ranks at the same time")
                                             : std::string("measured; messages between ranks are assumed");
  return figures;
}

Figures figures_of(const std::string& name, const PlanCommand& command) {
  Figures figures;
  if (name == plan::processor.name) {
    figures = measured(command.threads);
  } else {
    figures.name = name;
    figures.device = *std::find_if(plan::stated_devices.begin(), plan::stated_devices.end(),
                                   [&](const PlanDevice& device) { return device.name == name; });
    figures.origin = text("stated, not measured: ", figures.device.origin);
  }
  const auto give = [&](const char* what, const std::optional<double>& value, double unit, double PlanDevice::*figure) {
    if (!value) return;
    figures.device.*figure = *value * unit;
    figures.given.emplace_back(what);
  };
  give("memory", command.memory, 1e9, &PlanDevice::memory);
  give("bandwidth", command.bandwidth, 1e9, &PlanDevice::bandwidth);
  give("arithmetic", command.arithmetic, 1e12, &PlanDevice::arithmetic);
  give("latency", command.latency, 1e-6, &PlanDevice::latency);
  give("link", command.link, 1e9, &PlanDevice::link);
  give("share", command.share, 1, &PlanDevice::share);
  return figures;
}

/// Whether slm supports the device today.
const char* today(const PlanDevice& device) { return device.processor ? "runs" : "has not run"; }

std::string words_of(const Layout& layout) {
  std::string words;
  const auto add = [&](int count, const std::string& what) {
    if (count > 1) words += (words.empty() ? "" : ", ") + what;
  };
  add(layout.replicas, counted(layout.replicas, "replica"));
  add(layout.tensor, text("tensor ", layout.tensor));
  add(layout.stages, text("pipeline ", layout.stages));
  return words.empty() ? "one device" : words;
}

cli::OrderedJson json_of(const Plan& plan, const PlanDevice& device, bool requests) {
  const plan::StepCost& step = plan.step;
  cli::OrderedJson json{{"replicas", plan.layout.replicas},
                        {"tensor", plan.layout.tensor},
                        {"stages", plan.layout.stages},
                        {"devices", plan.layout.devices()},
                        {"today", today(device)},
                        {"weight_bytes", plan.weights},
                        {"cache_bytes", plan.cache},
                        {"fits", plan.fits},
                        {"most_sequences", plan.most_sequences},
                        {"step",
                         {{"weight_bytes", step.weight_bytes},
                          {"cache_bytes", step.cache_bytes},
                          {"operations", step.operations},
                          {"traffic_bytes", step.traffic},
                          {"messages", step.messages},
                          {"memory_seconds", step.memory_seconds},
                          {"arithmetic_seconds", step.arithmetic_seconds},
                          {"launch_seconds", step.launch_seconds},
                          {"message_seconds", step.message_seconds}}},
                        {"bound", step.bound()},
                        {"seconds_per_token", plan.step_seconds},
                        {"tokens_per_second", plan.tokens_per_second},
                        {"tokens_per_second_alone", 1 / plan.step_seconds_alone}};
  if (requests) {
    json["requests"] = {{"per_day", plan.requests_per_day},
                        {"replicas_needed", plan.replicas_needed},
                        {"seconds", plan.request_seconds},
                        {"in_flight", plan.in_flight}};
  }
  return json;
}

cli::OrderedJson json_of(const Figures& figures) {
  const PlanDevice& device = figures.device;
  return {
      {"name", figures.name},      {"origin", figures.origin},      {"given", figures.given},
      {"memory", device.memory},   {"bandwidth", device.bandwidth}, {"arithmetic", device.arithmetic},
      {"latency", device.latency}, {"link", device.link},           {"launch", device.launch},
      {"share", device.share},     {"measured", device.processor},  {"messages_measured", figures.messages_measured}};
}

std::string tables_of(const Figures& figures, const std::vector<Plan>& plans, bool requests) {
  const PlanDevice& device = figures.device;
  std::string given;
  for (const std::string& what : figures.given) given += (given.empty() ? "; given: " : ", ") + what;
  std::string out =
      text("\n# ", markdown_text(figures.name), "\n\n", markdown_text(figures.origin), given, ".\n",
           shown(device.memory / 1e9), " GB; ", percent(device.share), " of ", shown(device.bandwidth / 1e9),
           " GB/s and of ", shown(device.arithmetic / 1e12), " TFLOP/s; a message ", shown(device.latency * 1e6),
           " us and ", shown(device.link / 1e9), " GB/s; an operation ", shown(device.launch * 1e6), " us.\n");
  std::vector<std::vector<std::string>> memory, time, demand;
  for (const Plan& plan : plans) {
    const plan::StepCost& step = plan.step;
    const std::string layout = words_of(plan.layout), none = "-";
    const bool one_fits = plan.most_sequences >= plan.layout.replicas;
    memory.push_back(
        {layout, text(plan.layout.devices()), today(device), shown(plan.weights / 1e9), shown(plan.cache / 1e9),
         plan.fits ? "yes" : "no", text(static_cast<std::int64_t>(plan.most_sequences)),
         shown((step.weight_bytes + step.cache_bytes) / 1e9), shown(step.traffic / 1e6), shown(step.messages)});
    time.push_back({layout, shown(step.memory_seconds * 1e3), shown(step.arithmetic_seconds * 1e3),
                    shown(step.launch_seconds * 1e3), shown(step.message_seconds * 1e3), step.bound(),
                    one_fits ? shown(1 / plan.step_seconds_alone) : none,
                    plan.fits ? shown(plan.step_seconds * 1e3) : none,
                    plan.fits ? shown(plan.tokens_per_second) : none});
    demand.push_back({layout, plan.fits ? shown(plan.requests_per_day) : none,
                      plan.fits ? shown(plan.replicas_needed) : none,
                      plan.fits ? shown(plan.replicas_needed * plan.layout.tensor * plan.layout.stages) : none,
                      plan.fits ? shown(plan.request_seconds) : none, plan.fits ? shown(plan.in_flight) : none});
  }
  out += markdown_table("Memory and traffic per device",
                        {"way", "devices", "slm today", "weights GB", "cache GB", "fits", "sequences that fit",
                         "GB read per step", "MB from other ranks", "messages"},
                        memory);
  out += markdown_table("Time of a step",
                        {"way", "memory ms", "arithmetic ms", "launches ms", "messages ms", "bound by",
                         "tokens/s alone", "ms per token, all sequences", "tokens/s, all sequences"},
                        time);
  if (!requests) return out;
  return out + markdown_table("Requests",
                              {"way", "requests per day, at most", "replicas needed", "devices", "seconds per request",
                               "in flight"},
                              demand);
}

void run_plan(const PlanCommand& command) {
  const auto model_on = [&](bool processor) {
    PlannedModel planned = plan::planned_model(command.model, command.format, processor);
    planned.cache = kv_format_named(command.cache);
    return planned;
  };
  const PlannedModel model = model_on(true);
  const bool requests = command.requests_per_day > 0;
  const Load load{.sequences = static_cast<double>(command.sequences),
                  .context = command.context > 0 ? static_cast<double>(command.context)
                             : requests          ? static_cast<double>(command.prompt_tokens + command.answer_tokens)
                                                 : 2048.0,
                  .requests_per_day = command.requests_per_day,
                  .prompt = static_cast<double>(command.prompt_tokens),
                  .answer = static_cast<double>(command.answer_tokens)};
  const int ranks = command.ranks != 0 ? command.ranks : cli::rank_count();
  const std::vector<Layout> layouts = plan::layouts_of(model.shape, ranks, command.replicas, command.pipeline);
  if (layouts.empty()) {
    throw Error("bench.no-way",
                text(ranks, " ranks cannot form ", counted(command.replicas, "replica"), " of ",
                     counted(command.pipeline, "stage"), " each"),
                text("Use numbers whose product divides --ranks, and at most ", model.shape.layers, " stages"));
  }
  const double parameters = static_cast<double>(parameter_count(model.shape, {.tied = model.tied, .position_rows = 0}));
  cli::OrderedJson json{{"model", model.name},           {"format", model.format},         {"parameters", parameters},
                        {"cache_format", command.cache}, {"sequences", command.sequences}, {"context", load.context}};
  if (requests) {
    json["requests_per_day"] = command.requests_per_day;
    json["prompt_tokens"] = command.prompt_tokens;
    json["answer_tokens"] = command.answer_tokens;
  }
  std::string tables = text("An estimate, not a measurement: ", markdown_text(model.name), ", ", model.format, ", ",
                            shown(parameters / 1e9), "e9 weights, ", counted(command.sequences, "sequence"), " of ",
                            shown(load.context), " tokens in ", command.cache, ".\n");
  for (const std::string& name : command.devices) {
    const Figures figures = figures_of(name, command);
    const PlannedModel held = figures.device.processor ? model : model_on(false);
    std::vector<Plan> plans;
    cli::OrderedJson entry{{"device", json_of(figures)}};
    for (const Layout& layout : layouts) {
      plans.push_back(plan::plan_of(held, figures.device, layout, load));
      entry["ways"].push_back(json_of(plans.back(), figures.device, requests));
    }
    json["plans"].push_back(std::move(entry));
    tables += tables_of(figures, plans, requests);
  }
  command.json ? cli::print_json(json) : cli::print(tables);
}

}  // namespace

void add_plan(CLI::App& bench) {
  const auto given = std::make_shared<PlanCommand>();
  CLI::App& command =
      *bench.add_subcommand("plan", "Estimate memory, traffic and tokens/s on several devices, without measuring");
  command.add_option("--model", given->model, "a named shape, model folder, GGUF file or config.json")->required();
  command
      .add_option("--device", given->devices, "device to plan for; may be repeated; measured: this CPU, on all ranks")
      ->required()
      ->check(CLI::IsMember(device_names()));
  command.add_option("--ranks", given->ranks, "number of devices; 0: the number of ranks that mpirun started")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command.add_option("--replicas", given->replicas, "only layouts with this many replicas; 0: any")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command.add_option("--pipeline", given->pipeline, "only layouts with this many pipeline stages; 0: any")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command.add_option("--format", given->format, "weight format; default: as stored, bf16 for a named shape")
      ->check(CLI::IsMember(plan::formats));
  command.add_option("--cache-format", given->cache, "storage format of keys and values")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}))
      ->capture_default_str();
  command.add_option("--sequences", given->sequences, "sequences that decode at the same time, on all devices")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--context", given->context, "tokens per sequence; 0: those of a request, or 2048")
      ->check(CLI::Range(0, 1 << 24))
      ->capture_default_str();
  command.add_option("--requests-per-day", given->requests_per_day, "requests per day to serve")
      ->check(CLI::Range(0.0, 1e12));
  command.add_option("--prompt-tokens", given->prompt_tokens, "prompt tokens per request")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--answer-tokens", given->answer_tokens, "generated tokens per request")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--threads", given->threads, "threads per rank of the measured CPU; 0: one per core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  const auto add_figure = [&](const char* name, std::optional<double>& figure, const char* help, double most) {
    command.add_option(name, figure, help)->check(CLI::Range(1e-6, most));
  };
  add_figure("--memory", given->memory, "memory per device, GB; replaces the table's value", 1e9);
  add_figure("--bandwidth", given->bandwidth, "memory bandwidth per device, GB/s; replaces the table's value", 1e9);
  add_figure("--arithmetic", given->arithmetic, "arithmetic per device, TFLOP/s; replaces the table's value", 1e9);
  add_figure("--latency", given->latency, "latency of a message, us; replaces the table's value", 1e9);
  add_figure("--link", given->link, "bandwidth from another device, GB/s; replaces the table's value", 1e9);
  add_figure("--share", given->share, "reached share of bandwidth and arithmetic, 0 to 1", 1);
  command.add_flag("--json", given->json, "print one JSON object, in seconds and bytes");
  command.callback([given] { run_plan(*given); });
}

}  // namespace slm::bench
