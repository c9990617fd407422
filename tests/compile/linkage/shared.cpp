#include "fingerprint.hpp"

std::string fingerprint_of_shared() { return fingerprint(); }

void throw_from_shared() { throw_error(); }
