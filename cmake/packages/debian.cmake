# The packages of `cpack --preset deb`: libslm-dev for all architectures, and the program slm for this one.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The maintainers of slm")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_COMPONENTS_ALL dev)

set(CPACK_COMPONENT_DEV_DESCRIPTION "The headers, and what CMake and pkg-config find them by.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libslm-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "nlohmann-json3-dev (>= 3.10)")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "cmake (>= 3.25), pkgconf")

if(TARGET slm_program)
  list(APPEND CPACK_COMPONENTS_ALL program)
  set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "The program slm, which answers, chats, serves, quantizes and measures, with a pair of models to try it on.")
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME slm)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "bubblewrap, python3, python3-matplotlib")  # for slm bench
endif()
include(CPack)
