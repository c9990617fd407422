// A source of slm::compiled, apart from compiled.cpp: only programs that include slm/adapters.hpp link it.
#include "slm/adapters.hpp"
