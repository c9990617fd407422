# slm::c is libslm.so, slm::c_static libslm.a.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/slm_cTargets.cmake")
