#include <catch2/catch.hpp>
#include <cmath>

#include "slm/model/rope.hpp"

using namespace slm;

TEST_CASE("YaRN keeps fast frequencies, divides slow ones, and is finite for every base and bound") {
  ModelSettings settings;
  settings.rope_scaling = {.kind = RopeScaling::Kind::yarn, .factor = 4, .original_context = 16};
  settings.rope_scaling.beta_fast = 2;
  settings.rope_scaling.beta_slow = 0.2f;
  // The bounds are 12 ln(16 / (2 pi beta)) / ln(10000) for beta 2 and 0.2: 0.3 and 3.3, in whole dimensions 0 and 4.
  const std::vector<float> plain = inverse_frequencies(24, {}), scaled = inverse_frequencies(24, settings);
  CHECK(scaled[0] == plain[0]);
  CHECK(scaled[1] == Approx(plain[1] * (0.75 + 0.25 / 4)));
  CHECK(scaled[2] == Approx(plain[2] * (0.5 + 0.5 / 4)));
  for (std::size_t i = 4; i < 12; ++i) CHECK(scaled[i] == Approx(plain[i] / 4));
  for (const float theta : {1.0f, 2.0f, 1e12f}) {
    for (const float slow : {1e-3f, 1.0f, 2.0f, 1e6f}) {
      settings.rope_theta = theta;
      settings.rope_scaling.beta_slow = slow;
      for (const float frequency : inverse_frequencies(24, settings)) CHECK(std::isfinite(frequency));
    }
  }
}

TEST_CASE("Llama-3.2's frequencies are stretched as published") {
  ModelSettings settings;
  settings.rope_theta = 500000;
  settings.rope_scaling = {.kind = RopeScaling::Kind::llama3,
                           .factor = 32,
                           .low_frequency_factor = 1,
                           .high_frequency_factor = 4,
                           .original_context = 8192};
  const std::vector<float> frequencies = inverse_frequencies(64, settings);
  const double expected[] = {1,
                             0.66360122,
                             0.440366626,
                             0.292227805,
                             0.193922758,
                             0.128687382,
                             0.0853971019,
                             0.0566696189,
                             0.0376060307,
                             0.0249554086,
                             0.0165604409,
                             0.0109895291,
                             0.00729266508,
                             0.00483942125,
                             0.00321144611,
                             0.00129054801,
                             0.000429556705,
                             9.70828623e-05,
                             1.94616387e-05,
                             1.29147684e-05,
                             8.57025589e-06,
                             5.68723181e-06,
                             3.77405445e-06,
                             2.50446692e-06,
                             1.66196764e-06,
                             1.10288363e-06,
                             7.31874934e-07,
                             4.85673127e-07,
                             3.22293289e-07,
                             2.1387423e-07,
                             1.41927202e-07,
                             9.4183072e-08};
  REQUIRE(frequencies.size() == 32);
  for (std::size_t i = 0; i < 32; ++i) CHECK(frequencies[i] == Approx(expected[i]).epsilon(1e-6));
}

TEST_CASE("plain and linearly scaled frequencies follow the formula") {
  ModelSettings settings;
  CHECK(inverse_frequencies(64, settings)[16] == Approx(0.01).epsilon(1e-7));
  settings.rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 4};
  CHECK(inverse_frequencies(64, settings)[16] == Approx(0.0025).epsilon(1e-7));
}
