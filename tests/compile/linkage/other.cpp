#include "fingerprint.hpp"

std::string fingerprint_of_other() { return fingerprint(); }
