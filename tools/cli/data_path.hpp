// Files of the checkout that the program reads at run time: the embedded pair, scripts of the benchmarks.
#pragma once

#include <string>

namespace cli {

/// The path of a file or folder of the checkout: in share/slm next to an installed program, else in the checkout.
std::string data_path(const std::string& name);

}  // namespace cli
