// What slm::compiled holds, with the tests' options.
#include "cmake/compiled.cpp"
