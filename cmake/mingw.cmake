# Cross-compiles for Windows on Debian and runs the programs under Wine: packages g++-mingw-w64-x86-64-posix, wine64.
# Programs contain the compiler's libraries, so slm.exe needs no further files.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc-posix)
set(CMAKE_CXX_COMPILER x86_64-w64-mingw32-g++-posix)
set(CMAKE_RC_COMPILER x86_64-w64-mingw32-windres)
# Windows aligns stacks to 16 bytes, and this compiler keeps wider vectors there as if it aligned them to their size.
set(CMAKE_CXX_FLAGS_INIT "-Wa,-muse-unaligned-vector-move -Wa,-mbig-obj")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-static")
set(CMAKE_CROSSCOMPILING_EMULATOR wine)

# slm's libraries are header-only, so this machine's headers are used. Their folder contains those of Linux too, so each
# library gets a separate folder.
set(host_headers "${CMAKE_BINARY_DIR}/host_headers")
foreach(library IN ITEMS "nlohmann_json nlohmann nlohmann_json::nlohmann_json" "CLI11 CLI CLI11::CLI11"
    "Boost boost Boost::headers" "Catch2 catch2 Catch2::Catch2")
  separate_arguments(library)
  list(GET library 0 package)
  list(GET library 1 folder)
  list(GET library 2 target)
  if(NOT EXISTS "/usr/include/${folder}" OR DEFINED ${package}_DIR)
    continue()
  endif()
  set(place "${host_headers}/${package}")
  if(NOT EXISTS "${place}/${package}Config.cmake")
    file(MAKE_DIRECTORY "${place}/include")
    file(CREATE_LINK "/usr/include/${folder}" "${place}/include/${folder}" SYMBOLIC)
    file(WRITE "${place}/${package}ConfigVersion.cmake" "set(PACKAGE_VERSION_COMPATIBLE TRUE)\n")
    file(WRITE "${place}/${package}Config.cmake"
      "set(${package}_INCLUDE_DIRS \"${place}/include\")\n"
      "if(NOT TARGET ${target})\n"
      "  add_library(${target} INTERFACE IMPORTED)\n"
      "  target_include_directories(${target} SYSTEM INTERFACE \"${place}/include\")\n"
      "endif()\n")
  endif()
  set(${package}_DIR "${place}" CACHE PATH "Folder of the headers of ${package}")
endforeach()
