// A view is indexed by as many indices as it has axes.
// expect: sizeof...(Indices) == Rank
#include "slm/core/view.hpp"

float corner(slm::View<float, 2> rows) {
#ifdef SLM_FIXED
  return rows(0, 0);
#else
  return rows(0, 0, 0);
#endif
}
