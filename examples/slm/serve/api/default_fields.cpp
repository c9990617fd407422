#include "api/default_fields.hpp"

#include <algorithm>

namespace serve {

slm::Json parse_defaults(const std::vector<std::string>& settings) {
  slm::Json defaults = slm::Json::object();
  for (const std::string& setting : settings) {
    const auto refuse = [&setting](const std::string& fault) -> slm::Error {
      return {"serve.bad-default", slm::text("the default ", slm::quote(setting), " ", fault),
              "Write FIELD=VALUE with a field and a value that docs/reference/request-fields.md lists"};
    };
    const std::size_t sign = std::min(setting.find('='), setting.size());
    const std::string name = setting.substr(0, sign), text = setting.substr(std::min(sign + 1, setting.size()));
    slm::Json value = slm::Json::parse(text, nullptr, false);
    if (!value.is_number() && !value.is_boolean()) value = text;
    bool known = false;
    for (const FieldRow& row : field_table()) {
      if (row.use != FieldUse::followed || row.name != name) continue;
      known = true;
      for (unsigned route = 1; route != 0; route <<= 1) {
        if ((row.routes & route) == 0) continue;
        slm::Json body{{name, value}};
        try {
          check_fields(body, static_cast<FieldRoute>(route), true);
        } catch (const Refusal& refusal) {
          std::string reason = refusal.what();
          if (reason.ends_with('.')) reason.pop_back();
          throw refuse("is not accepted: " + reason);
        }
      }
    }
    if (!known) throw refuse("names no field of a request");
    defaults[name] = std::move(value);
  }
  return defaults;
}

void add_defaults(slm::Json& body, FieldRoute route, const slm::Json& defaults) {
  for (const auto& [name, value] : defaults.items()) {
    const FieldRow* const row = find_field(name, route);
    if (row == nullptr || row->use != FieldUse::followed) continue;
    if (!body.contains(name) || body[name].is_null()) body[name] = value;
  }
}

}  // namespace serve
