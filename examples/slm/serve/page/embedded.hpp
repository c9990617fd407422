// Files of this folder, embedded in the program.
#pragma once

#include <string_view>

namespace serve {

extern const std::string_view page_html;     // {{nonce}} is replaced by that of the content security policy
extern const std::string_view openapi_json;  // the API's description

}  // namespace serve
