// Files of this folder, as the program holds them.
#pragma once

#include <string_view>

namespace serve {

extern const std::string_view page_html;     // {{nonce}} stands for that of its policy
extern const std::string_view openapi_json;  // of the API

}  // namespace serve
