#include "support/paths.hpp"

// The only source of the tests with the checkout's path: a compiler cache serves every checkout.
std::filesystem::path slm::testing::source_path(const std::string& relative) { return SLM_SOURCE_DIR "/" + relative; }
