#include "api/embedding_exchange.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tools/cli/unit_length.hpp"

namespace serve {

namespace {

struct EmbeddingRequest {
  AskedModel asked;
  std::vector<std::vector<slm::Token>> texts;
  std::uint64_t tenant = 0;  // requests of one tenant share pages
  slm::Pooling pooling = slm::Pooling::mean;
  bool normalize = true;
  bool base64 = false;
  EmbeddingForm form = EmbeddingForm::openai;
  std::size_t most_results = 0;             // of /rerank, like the following
  bool is_list = false;                     // TEI's form
  std::vector<std::string> documents = {};  // wanted in the results; empty: not
};

/// The query and the documents of /rerank.
void read_documents(const Fields& fields, const ServedModel& model, EmbeddingRequest& request) {
  request.is_list = fields.has("texts");
  const char* const name = request.is_list ? "texts" : "documents";
  if (!fields.has("query")) throw bad_field("query", "is absent, expected a text");
  const slm::Json* const list = fields.find(name);
  if (list == nullptr || list->empty()) throw bad_field(name, "is absent or empty, expected a list of texts");
  for (const slm::Json& text : *list) {
    if (!text.is_string()) throw Fields::bad(name, text, "texts");
  }
  request.texts = read_prompts("query", fields, model);
  for (auto& text : read_prompts(name, fields, model)) request.texts.push_back(std::move(text));
  const auto most = static_cast<std::size_t>(fields.integer("top_n").value_or(static_cast<std::int64_t>(list->size())));
  request.most_results = std::min(most, list->size());
  if (fields.boolean("return_text", false)) request.documents = list->get<std::vector<std::string>>();
}

EmbeddingRequest read(const slm::Json& body, const ServedModel& model, EmbeddingForm form) {
  const Fields fields(body);
  EmbeddingRequest request{.asked = asked_model(fields, model), .texts = {}, .tenant = read_tenant(fields)};
  request.form = form;
  if (form == EmbeddingForm::rerank) {
    read_documents(fields, model, request);
  } else {
    request.texts = read_prompts("input", fields, model);
  }
  for (const auto& text : request.texts) {
    check_prompt(form == EmbeddingForm::rerank ? "documents" : "input", text, 0, model);
  }
  if (fields.has("pooling")) {
    const std::string pooling = fields.string("pooling", "");
    if (pooling != "mean" && pooling != "last") throw bad_field("pooling", "is neither mean nor last");
    if (pooling == "last") request.pooling = slm::Pooling::last;
  } else {
    if (model.no_pooling) throw refused_by(*model.no_pooling).of("pooling");
    request.pooling = model.pooling;
  }
  request.normalize = fields.boolean("normalize", true);
  const std::string format = fields.string("encoding_format", "float");
  if (format != "float" && format != "base64") throw bad_field("encoding_format", "is neither float nor base64");
  request.base64 = format == "base64";
  return request;
}

std::string base64_of(const std::vector<float>& values) {
  static_assert(std::endian::native == std::endian::little);  // clients expect this byte order
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) { return i + k < bytes.size() ? unsigned{bytes[i + k]} : 0u; };
    const unsigned three = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (unsigned k = 0; k < 4; ++k) text += i + k <= bytes.size() ? digits[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

class EmbeddingExchange final : public Exchange {
 public:
  EmbeddingExchange(EmbeddingRequest request, const ServedModel& model, Service& service,
                    const slm::CancelToken& cancel, const std::function<void()>& wake)
      : request_(std::move(request)) {
    bring(request_.asked, model);
    for (const auto& text : request_.texts) {
      try {
        answers_.push_back(service.submit({.prompt = text,
                                           .sampling = {.max_new_tokens = 0},
                                           .pooling = request_.pooling,
                                           .tenant = request_.tenant,
                                           .cancel = cancel},
                                          {.adapter = request_.asked.adapter}, wake));
      } catch (const slm::Error& error) {
        end();
        throw refused_by(error);
      }
    }
  }
  ~EmbeddingExchange() override { end(); }
  EmbeddingExchange(const EmbeddingExchange&) = delete;
  EmbeddingExchange& operator=(const EmbeddingExchange&) = delete;

  void poll(HttpOutput& out) override {
    try {
      for (slm::Answer& answer : answers_) {
        if (!answer.over()) return;
        answer.try_next();  // throws the error of the request
        if (answer.embedding().empty()) return answer_refusal(out, shutting_down());
      }
    } catch (const slm::Error& error) {
      return answer_refusal(out, request_.asked.refusal_for(error));
    } catch (const std::exception&) {
      return answer_refusal(out, failed_by("serve.engine-fault"));
    }
    out.answer(200, "application/json", slm::json_text(whole()));
  }

 private:
  void end() {
    for (slm::Answer& answer : answers_) answer.cancel();
  }

  std::vector<float> vector_of(std::size_t i) const {
    std::vector<float> values = answers_[i].embedding();
    if (request_.normalize || request_.form == EmbeddingForm::rerank) cli::to_unit_length(values);
    return values;
  }

  OrderedJson usage() const {
    std::size_t tokens = 0;
    for (const auto& text : request_.texts) tokens += text.size();
    return {{"prompt_tokens", tokens}, {"total_tokens", tokens}};
  }

  OrderedJson whole() const {
    if (request_.form == EmbeddingForm::rerank) return results();
    const bool openai = request_.form == EmbeddingForm::openai;
    OrderedJson data = OrderedJson::array();
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      OrderedJson entry{{"index", i}};
      if (openai) entry = {{"object", "embedding"}, {"index", i}};
      const std::vector<float> values = vector_of(i);
      OrderedJson vector = request_.base64 ? OrderedJson(base64_of(values)) : OrderedJson(values);
      entry["embedding"] = openai ? std::move(vector) : OrderedJson::array({std::move(vector)});
      data.push_back(std::move(entry));
    }
    if (!openai) return data;
    return {{"object", "list"}, {"data", std::move(data)}, {"model", request_.asked.name}, {"usage", usage()}};
  }

  /// The documents by their cosine similarity with the query, the largest first.
  OrderedJson results() const {
    const std::vector<float> query = vector_of(0);
    std::vector<std::pair<double, std::size_t>> scores;
    for (std::size_t i = 1; i < answers_.size(); ++i) {
      const std::vector<float> document = vector_of(i);
      scores.emplace_back(std::inner_product(query.begin(), query.end(), document.begin(), 0.0), i - 1);
    }
    std::stable_sort(scores.begin(), scores.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    scores.resize(request_.most_results);
    OrderedJson list = OrderedJson::array();
    for (const auto& [score, i] : scores) {
      OrderedJson result{{"index", i}, {request_.is_list ? "score" : "relevance_score", score}};
      if (!request_.documents.empty()) result["text"] = request_.documents[i];
      list.push_back(std::move(result));
    }
    if (request_.is_list) return list;
    return {{"model", request_.asked.name}, {"object", "list"}, {"usage", usage()}, {"results", std::move(list)}};
  }

  EmbeddingRequest request_;
  std::vector<slm::Answer> answers_;
};

}  // namespace

std::unique_ptr<Exchange> answer_embeddings(const slm::Json& checked, const ServedModel& model, Service& service,
                                            const slm::CancelToken& cancel, const std::function<void()>& wake,
                                            EmbeddingForm form) {
  return std::make_unique<EmbeddingExchange>(read(checked, model, form), model, service, cancel, wake);
}

}  // namespace serve
