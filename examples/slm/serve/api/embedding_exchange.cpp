#include "api/embedding_exchange.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
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
};

EmbeddingRequest read(const slm::Json& body, const ServedModel& model) {
  const Fields fields(body);
  AskedModel asked = asked_model(fields, model);
  EmbeddingRequest request{
      .asked = std::move(asked), .texts = read_prompts("input", fields, model), .tenant = read_tenant(fields)};
  for (const auto& text : request.texts) check_prompt("input", text, 0, model);
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

  OrderedJson whole() const {
    OrderedJson data = OrderedJson::array();
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < answers_.size(); ++i) {
      std::vector<float> values = answers_[i].embedding();
      if (request_.normalize) cli::to_unit_length(values);
      data.push_back({{"object", "embedding"},
                      {"index", i},
                      {"embedding", request_.base64 ? OrderedJson(base64_of(values)) : OrderedJson(values)}});
      tokens += request_.texts[i].size();
    }
    return {{"object", "list"},
            {"data", std::move(data)},
            {"model", request_.asked.name},
            {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
  }

  EmbeddingRequest request_;
  std::vector<slm::Answer> answers_;
};

}  // namespace

std::unique_ptr<Exchange> answer_embeddings(const slm::Json& checked, const ServedModel& model, Service& service,
                                            const slm::CancelToken& cancel, const std::function<void()>& wake) {
  return std::make_unique<EmbeddingExchange>(read(checked, model), model, service, cancel, wake);
}

}  // namespace serve
