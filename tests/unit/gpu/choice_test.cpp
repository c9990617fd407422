// Tokens chosen on emulated lanes are the host's tokens.
#include "slm/backend/gpu/lanes.hpp"
#include "support/gpu_choice.hpp"

using namespace slm;
using namespace slm::testing;
using Wide = backend::Lanes64::Runtime;
using Narrow = backend::Lanes32::Runtime;

TEST_CASE("32 lanes choose the host's tokens") { check_choices<Narrow>(400, 2); }
TEST_CASE("64 lanes choose the host's tokens") { check_choices<Wide>(200, 2); }

TEST_CASE("vocabularies of 50304 and 50432 ids, ids beyond the target's left out") {
  check_choice_of<Narrow>(50304, 0);
  check_choice_of<Narrow>(50432, 1);
}
