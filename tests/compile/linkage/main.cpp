#include <iostream>

#include "fingerprint.hpp"

void throw_from_shared();

int main() {
  const std::string here = fingerprint();
  std::cout << "main   " << here << "\nother  " << fingerprint_of_other() << "\nshared " << fingerprint_of_shared()
            << '\n';
  if (here.empty() || fingerprint_of_other() != here || fingerprint_of_shared() != here) return 1;
  try {
    throw_from_shared();
  } catch (const slm::Error& error) {
    return error.id() == "test.linkage" ? 0 : 1;
  }
  return 1;
}
